"""Plays daemon and agents for workers of `bftrainer.elastic`: publishes memberships and relays messages.

Workers are forked from one process that has imported PyTorch already, so that a test takes no time to
start them. A script is a function of stage_scripts.py, stage_parts.py or stage_adaptive.py,
called with a folder of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waiting import LONG_S

_fork = multiprocessing.get_context("forkserver")
# the first optimizer that a process makes imports torch._dynamo, which takes as long as torch
_fork.set_forkserver_preload(["torch._dynamo", "bftrainer.elastic", "tests.support.stage_parts"])


class Stage:
    """Workers of one trainer; `orders` are what a launcher would tell each of them besides."""

    def __init__(self, script: str, folder: Path, **orders: Any) -> None:
        self._script, self.folder = script, folder
        self._orders = {"samples": None, "checkpoint_dir": str(folder / "ckpt"), "checkpoint_every_s": 3600.0}
        self._orders |= orders
        self._changed, self._publishing = threading.Condition(), threading.Lock()
        self._said: list[dict[str, Any]] = []
        self._sockets: dict[str, socket.socket] = {}
        self._members: tuple[str, ...] = ()
        self.generation = 0
        self.workers: dict[str, Any] = {}

    def start(self, *nodes: str) -> None:
        """Start a worker on each node and wait until all of them are ready."""
        for node in nodes:
            ours, theirs = socket.socketpair()
            orders = {"trainer": 1, "node": node, "generation": 1, "address": "127.0.0.1", **self._orders}
            worker = _fork.Process(target=_work, args=(theirs, orders, self._script, str(self.folder)))
            worker.start()
            theirs.close()
            self.workers[node], self._sockets[node] = worker, ours
            threading.Thread(target=self._listen, args=(node, ours), daemon=True).start()
        for node in nodes:
            self.until("ready", node=node)

    def publish(self, *members: str, leaving: tuple[str, ...] = (), wait: bool = True) -> None:
        """Publish a membership; wait until all its members have joined it."""
        with self._publishing:
            self.generation += 1
            self._members = members
            message = {"type": "regroup", "members": list(members), "leaving": list(leaving)}
            for node in (*members, *leaving):
                self.send(node, {**message, "generation": self.generation})
        for node in members if wait else ():
            self.until("joined", node=node, generation=self.generation)

    def kill(self, node: str) -> None:
        """As a main job does that takes the node."""
        os.kill(self.workers[node].pid, signal.SIGKILL)
        self.workers[node].join(30)

    def end(self, *nodes: str) -> None:
        """Wait until these workers have ended well."""
        for node in nodes:
            self.workers[node].join(LONG_S)
            assert self.workers[node].exitcode == 0, (node, self.workers[node].exitcode, self.story())

    def through_losses(self) -> None:
        """Of a, b and c, rank 0 is killed, d comes and b leaves; c and d go on for a while, and end."""
        self.kill("a")
        self.publish("b", "c")
        self.start("d")
        self.publish("b", "c", "d")
        self.publish("c", "d", leaving=("b",))
        self.end("b")
        self.until("progress", generation=self.generation, size=2)
        (self.folder / "stop").touch()
        self.end("c", "d")

    def figures(self) -> dict[str, float]:
        """The figures that were reported last."""
        said = self.heard("progress")
        return said[-1]["metrics"] if said else {}

    def send(self, node: str, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._sockets[node].sendall(json.dumps(message).encode() + b"\n")

    def heard(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """The messages of a kind so far, oldest first."""
        wanted = {"type": kind, **fields}.items()
        with self._changed:
            return [m for m in self._said if wanted <= {k: m.get(k) for k, _ in wanted}.items()]

    def until(self, kind: str, seconds: float = LONG_S, **fields: Any) -> dict[str, Any]:
        """Wait for a message and return the first of its kind."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (found := self.heard(kind, **fields)):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no {kind} {fields}\n{self.story()}")
        return found[0]

    def story(self) -> str:
        """What there is to know when a test fails, with the stacks of those that still run. To ask for these
        may kill a worker: a thread that is not stopped changes what is read."""
        for worker in self.workers.values():
            if worker.is_alive():
                os.kill(worker.pid, signal.SIGUSR1)
                worker.join(0.5)
        said = [str(m) for m in self._said if m["type"] not in ("kv", "progress")]
        said += [f"{node}: exit code {worker.exitcode}" for node, worker in self.workers.items()]
        return "\n".join([*said, *(log.read_text()[-3000:] for log in self.folder.glob("*.log"))])

    def close(self) -> None:
        for worker in self.workers.values():
            if worker.is_alive():
                worker.kill()
            worker.join(30)

    def _relay(self, node: str, message: dict[str, Any]) -> None:
        with self._publishing:  # never before the peer has heard of the generation
            if message["generation"] == self.generation:
                for peer in self._members:
                    if peer != node:
                        self.send(peer, message)

    def _listen(self, node: str, ours: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), ours.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["type"] in ("kv", "busy"):
                    self._relay(node, {**message, "node": node})
                with self._changed:
                    self._said.append({**message, "node": node})
                    self._changed.notify_all()


def _work(theirs: socket.socket, orders: dict[str, Any], script: str, folder: str) -> None:
    from tests.support import stage_adaptive, stage_parts, stage_scripts

    with Path(folder, f"{orders['node']}-{os.getpid()}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    multiprocessing.set_start_method("fork", force=True)  # as in a process that was started by an agent
    os.environ["BFTRAINER_WORKER"] = json.dumps({"fd": theirs.detach(), **orders})
    here = next(m for m in (stage_scripts, stage_parts, stage_adaptive) if hasattr(m, script))
    getattr(here, script)(Path(folder))


@contextlib.contextmanager
def staged(script: str, folder: Path, **orders: Any) -> Iterator[Stage]:
    stage = Stage(script, folder, **orders)
    try:
        yield stage
    finally:
        stage.close()
