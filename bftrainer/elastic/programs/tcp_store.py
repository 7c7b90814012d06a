"""`python -m bftrainer.elastic.programs.tcp_store ADDRESS MEMORY_MB CONNECTIONS`: rendezvous stores for
torchrun-style workers.

The stores must outlive every node, so this process runs beside the daemon, which itself imports no torch.
Each run of a trainer has its own store, in a process of its own that is forked from this one: everybody on
the network can fill a store, and then harms no other trainer. This process loads torch, listens to nothing
and ends with its standard input; the stores end with it.

Lines of JSON: in {"trainer": 3, "run": 17}, which ends the trainer's store before, or {"trainer": 3, "run":
0}, which only does that; out {"trainer": 3, "run": 17, "port": 40123}, and {"trainer": 3, "run": 17, "lost":
"why"} when a store has ended by itself. {"trainer": 3, "run": 17, "used": null} asks whether any process has
ever written to a run's store; the answer is {"trainer": 3, "run": 17, "used": true} or false.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported conditionally

from bftrainer.elastic.programs.confine import confine, is_full

CHECK_S = 0.2
"""Seconds between a store's checks of its memory."""
FULL = 75
"""The exit code of a store whose memory or connections were used up."""
_PR_SET_PDEATHSIG = 1


def open_store(address: str) -> TCPStore:
    """A store that listens on `address` only, at a port that the kernel chooses.

    Raises:
        OSError: this machine has no such address.
    """
    try:
        return _store(address, use_libuv=True)
    except RuntimeError:  # PyTorch 2.6's libuv takes no open socket, and Debian's PyTorch has no libuv
        return _store(address, use_libuv=False)


def _store(address: str, *, use_libuv: bool) -> TCPStore:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, 0))
        listener.listen(1024)
        port = listener.getsockname()[1]
        return TCPStore(
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            use_libuv=use_libuv,
        )


@dataclass(frozen=True, slots=True)
class Hosted:
    """A store's process. Through `link` it says its port, answers whether it was used, and ends with it."""

    trainer: int
    run: int
    pid: int
    link: int


class Host:
    """The processes of all stores, one a trainer. `serve` runs in them and never returns."""

    def __init__(self, serve: Callable[[int], None]) -> None:
        self._serve = serve
        self._hosted: dict[int, Hosted] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Follow orders until the standard input ends."""
        self._selector.register(0, selectors.EVENT_READ)
        rest = b""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._heard(key.data)
                    continue
                data = os.read(0, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def _obey(self, wanted: dict[str, Any]) -> None:
        if "used" in wanted:
            self._ask(wanted["trainer"], wanted["run"])
            return
        before = self._hosted.pop(wanted["trainer"], None)
        if before is not None:
            os.kill(before.pid, signal.SIGKILL)
            self._reap(before)
        if wanted["run"]:
            hosted = self._fork(wanted["trainer"], wanted["run"])
            self._hosted[hosted.trainer] = hosted
            self._selector.register(hosted.link, selectors.EVENT_READ, hosted)

    def _ask(self, trainer: int, run: int) -> None:
        """Have a store's process say whether it was used; nothing where it has ended, as that is told."""
        hosted = self._hosted.get(trainer)
        if hosted is not None and hosted.run == run:
            with contextlib.suppress(OSError):
                os.write(hosted.link, b"?")

    def _fork(self, trainer: int, run: int) -> Hosted:
        ours, theirs = (own.detach() for own in socket.socketpair(type=socket.SOCK_SEQPACKET))
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(theirs)
            return Hosted(trainer, run, pid, ours)
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                for fd in (0, 1, ours, *(hosted.link for hosted in self._hosted.values())):
                    os.close(fd)
                self._serve(theirs)
        finally:
            os._exit(1)

    def _heard(self, hosted: Hosted) -> None:
        """A store's process has reported its port, or has ended."""
        if self._hosted.get(hosted.trainer) is not hosted:
            return  # ended in the same turn, to make room for the next
        known = {"trainer": hosted.trainer, "run": hosted.run}
        if said := _read(hosted.link):
            print(json.dumps({**known, **json.loads(said)}), flush=True)
        else:
            del self._hosted[hosted.trainer]
            print(json.dumps({**known, "lost": self._reap(hosted)}), flush=True)

    def _reap(self, hosted: Hosted) -> str:
        """Wait for a process that has ended or is about to. Returns how it ended."""
        self._selector.unregister(hosted.link)
        os.close(hosted.link)
        code = os.waitstatus_to_exitcode(os.waitpid(hosted.pid, 0)[1])
        if code == FULL:
            return "its memory or its connections were used up"
        return f"{signal.Signals(-code).name} ended it" if code < 0 else f"it ended with code {code}"


def _read(link: int) -> bytes:
    """One message; empty where the other end is gone."""
    try:
        return os.read(link, 100)
    except ConnectionResetError:
        return b""


def main() -> None:
    """Host stores at the address and within the bounds that the arguments say."""
    address, memory_mb, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    def serve(link: int) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # torch writes a line for each odd client
        confine(memory_mb=memory_mb, descriptors=connections)
        store = open_store(address)
        own = store.num_keys()
        os.write(link, json.dumps({"port": store.port}).encode())
        while not is_full(memory_mb):
            if select.select([link], [], [], CHECK_S)[0]:
                os.read(link, 1)
                os.write(link, json.dumps({"used": store.num_keys() > own}).encode())
        os._exit(FULL)

    Host(serve).run()


if __name__ == "__main__":
    main()
