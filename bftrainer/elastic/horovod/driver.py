"""`python -m bftrainer.elastic.horovod.driver`: leads the workers of one Horovod trainer.

This process runs beside the daemon and outlives it. Workers ask it for their places whenever they have to
find each other. It speaks Horovod's protocol with the workers, over HTTP and Horovod's notifications, and
lines of JSON with the daemon, over a Unix socket.

Daemon -> driver: world {generation, hosts}, gone {host}, end. Driver -> daemon: up {port} at every
connection, formed {generation, hosts}, asking {host}, torn {generation}.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import click
from horovod.runner.common.util.hosts import INVALID_SLOT_INFO, HostInfo, get_host_assignments
from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, create_rendezvous_handler
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationClient
from horovod.runner.http.http_server import RendezvousServer

from bftrainer.elastic.horovod import slots
from bftrainer.elastic.horovod.assembly import Assembly, HorovodWorld
from bftrainer.elastic.horovod.bounds import STACK_BYTES, bound
from bftrainer.elastic.horovod.guard import guard
from bftrainer.elastic.programs.confine import MB, confine, is_full

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Seconds that leaving workers wait for those that come with the same change."""
OWN_DESCRIPTORS = 64
"""Descriptors of the driver besides connections of workers."""
MOST_IN_A_NAME = 300
"""Characters of a host's name. The daemon bounds the lines of its messages."""
STRANGER_S = 10.0
"""Seconds for which a worker may ask before the daemon has named it."""
TELL_AGAIN_S = 2.0
"""Seconds for rank 0 to complete its step before it is told again."""


class Driver:
    """The workers' side: Horovod's handler calls the methods with Horovod's names."""

    def __init__(self) -> None:
        self._assembly = Assembly()
        self._changed = threading.Condition()
        self._published_at = 0.0
        self._answers: dict[str, str] = {}
        self._clients: dict[str, WorkerNotificationClient] = {}
        self._server = RendezvousServer()
        self._daemon: socket.socket | None = None
        self.port: int = self._server.start(_handler(self))
        threading.Thread(target=self._keep_told, name="notifier", daemon=True).start()

    # what workers ask

    def place(self, worker: str) -> str:
        """Wait until all workers of this one's membership have asked; its ranks and sizes, as Horovod writes
        them. One that the daemon has named in no membership gets no place."""
        with self._changed:
            self._assembly.asking.add(worker)
            self._tell(type="asking", host=slots.host_of(worker))
            self._decide()
            if not self._changed.wait_for(lambda: self._assembly.knows(worker), STRANGER_S):
                self._assembly.asking.discard(worker)
                return str(INVALID_SLOT_INFO.to_response_string())
            self._changed.wait_for(lambda: worker in self._answers)
            return self._answers.pop(worker)

    def register_worker_server(self, host: str, slot: int, addresses: Any, secret: bytes) -> None:
        """Take in where a worker listens for changes of hosts."""
        client = WorkerNotificationClient(addresses, secret, 0)
        with self._changed:
            self._clients[slots.worker_at(host, slot)] = client
            self._changed.notify_all()

    def finalized(self, scope: str, rank: int) -> None:
        """Take in that a worker has connected to all others of a scope."""
        with self._changed:
            worker = slots.finisher(scope, rank, self._assembly.formed.hosts)
            if worker is not None:
                self._assembly.connected.add(worker)

    def _decide(self) -> None:
        """Answer the workers that can be answered now."""
        formed = self._assembly.let_go()
        if formed is not None:
            counts = slots.slots_of(formed.hosts)
            places = get_host_assignments([HostInfo(host, count) for host, count in counts.items()], 1)
            self._server.init(places)
            self._answers |= {
                slots.worker_at(place.hostname, place.local_rank): place.to_response_string()
                for place in places
            }
            self._tell_formed()
        for worker in self._assembly.turn_away():
            self._answers[worker] = INVALID_SLOT_INFO.to_response_string()
        self._changed.notify_all()

    def _keep_told(self) -> None:
        """Tell rank 0 to end its world when there is a new one, again and again until it does."""
        told: tuple[int, float] = (0, 0.0)
        while True:
            with self._changed:
                self._changed.wait(PATIENCE_S / 4)
                leader = self._assembly.to_be_told(patient=time.monotonic() - self._published_at < PATIENCE_S)
                client = self._clients.get(leader) if leader else None
                generation = self._assembly.target.generation
            now = time.monotonic()
            if client is None or (told[0] == generation and now - told[1] < TELL_AGAIN_S):
                continue
            told = (generation, now)
            with contextlib.suppress(OSError, EOFError):  # it has just ended: its loss will be reported
                # "added": all ranks then take the state of rank 0, whatever has happened;
                # Horovod compares whole seconds of its own time-stamps, a fraction tells two changes apart
                client.notify_hosts_updated(time.time(), HostUpdateResult.added)

    # what the daemon says

    def converse(self, daemon: socket.socket) -> bool:
        """Follow one daemon's orders until the connection ends. False: the trainer is over."""
        with self._changed:
            self._daemon = daemon
            self._tell(type="up", port=self.port)
            self._tell_formed()
            for host in slots.hosts_of(self._assembly.asking):
                self._tell(type="asking", host=host)
        # a daemon that is killed before it has read all of our messages resets the connection
        with daemon, daemon.makefile("rb") as lines, contextlib.suppress(ConnectionError):
            for line in lines:
                message = json.loads(line)
                if message["type"] == "end":
                    return False
                self._obey(message)
        return True

    def _obey(self, message: dict[str, Any]) -> None:
        with self._changed:
            if message["type"] == "world":
                self._published_at = time.monotonic()
                workers = slots.workers_of(message["hosts"], message.get("slots", ()))
                self._assembly.publish(HorovodWorld(message["generation"], workers))
                self._tell_formed()  # the same workers may be training already
            elif message["type"] == "gone" and self._assembly.lose_host(message["host"]):
                self._tell(type="torn", generation=self._assembly.formed.generation)
            self._decide()

    def _tell_formed(self) -> None:
        formed = self._assembly.formed
        self._tell(type="formed", generation=formed.generation, hosts=slots.hosts_of(formed.hosts))

    def _tell(self, **message: Any) -> None:
        if self._daemon is not None:
            with contextlib.suppress(OSError):  # it is gone; the next daemon gets what counts with "up"
                self._daemon.sendall(json.dumps(message).encode() + b"\n")


def _handler(driver: Driver) -> type[Any]:
    """Horovod's request handler, which asks `driver` for places."""
    base = create_rendezvous_handler(driver)

    class Handler(base):  # type: ignore[misc, valid-type]  # Horovod is not typed
        def _get_value(self, scope: str, key: str) -> bytes | None:
            if scope == GET_RANK_AND_SIZE:
                if len(key) > MOST_IN_A_NAME:
                    return None
                return driver.place(key).encode()
            value: bytes | None = super()._get_value(scope, key)
            return value

        def do_DELETE(self) -> None:  # noqa: N802  named by http.server
            _, scope, key = self.path.split("/")
            driver.finalized(scope, int(key))
            super().do_DELETE()

    return Handler


def serve(driver: Driver, path: Path, orphan_s: float) -> None:
    """Serve one daemon after the other, until the trainer is over or no daemon has come for `orphan_s`
    seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(orphan_s)
        try:
            while driver.converse(listener.accept()[0]):
                pass
        except TimeoutError:
            log.warning("no daemon for %.0f s: giving up", orphan_s)
        finally:
            path.unlink(missing_ok=True)


def _end_when_full(memory_mb: int) -> None:
    """End a process that could serve nobody any more: the daemon starts another."""
    while not is_full(memory_mb):
        time.sleep(1.0)
    log.error("what anybody may send has filled this process: it ends")
    os._exit(1)


@click.command()
@click.option("--socket", "path", required=True, type=click.Path(path_type=Path), help="Where to listen.")
@click.option("--address", default="", help="Where to listen for workers; empty: everywhere.")
@click.option("--memory-mb", default=256, show_default=True, help="What may be taken besides the start's.")
@click.option("--connections", default=4096, show_default=True, help="How many workers may connect at once.")
@click.option("--orphan-s", default=60.0, show_default=True, help="How long to go on without a daemon.")
def main(path: Path, address: str, memory_mb: int, connections: int, orphan_s: float) -> None:
    """Lead the workers of one Horovod trainer."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s horovod driver %(levelname)s %(message)s")
    os.umask(0o077)  # its socket is for its daemon alone
    guard()
    threads = min(connections, memory_mb * MB // 2 // STACK_BYTES)  # a thread serves each
    bound(address, values_bytes=memory_mb * MB // 4, connections=threads)
    confine(memory_mb=memory_mb, descriptors=connections + OWN_DESCRIPTORS)
    driver = Driver()
    threading.Thread(target=_end_when_full, args=(memory_mb,), name="memory", daemon=True).start()
    serve(driver, path, orphan_s)
    os._exit(0)  # workers may still wait for an answer, in threads that nothing else ends


if __name__ == "__main__":
    main()
