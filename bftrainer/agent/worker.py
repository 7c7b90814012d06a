"""One worker process: the user's command, its log, and the socket to `bftrainer.elastic` in it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_LINE = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Worker:
    """Starts at `start`, reports through `said` and, once, `over`.

    `phase` follows what the worker says: starting, ready, member, finished; leaving is our order.
    """

    def __init__(
        self,
        order: dict[str, Any],
        node: str,
        address: str,
        said: Callable[[Worker, dict[str, Any]], None],
        over: Callable[[Worker, int], None],
    ) -> None:
        self.order = order
        self.trainer: int = order["trainer"]
        self.generation: int = order["generation"]
        self.phase = "starting"
        self.joined = 0  # the last generation that it became a member of
        self.last: dict[str, Any] = {}  # its last progress
        self._node, self._address = node, address
        self._said, self._over = said, over
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Spawn the command.

        Raises:
            OSError: no such command or working directory, or no log can be written.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            log = Path(self.order["log"])
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *self.order["command"],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.order["workdir"],
                    env=self._environment(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    process_group=0,
                    preexec_fn=_die_with(os.getpid()),
                )
            reader, self._writer = await asyncio.open_connection(sock=ours.dup(), limit=MAX_LINE)
        self._tasks = [asyncio.create_task(self._listen(reader)), asyncio.create_task(self._wait())]

    def send(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def leave_within(self, grace_s: float) -> None:
        """The worker has been told to leave: kill it if it does not."""
        self.phase = "leaving"
        if self._kill_timer is None:
            self._kill_timer = asyncio.get_running_loop().call_later(grace_s, self.kill)

    def kill(self) -> None:
        """Kill the worker and all its children that stayed in its process group."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _environment(self, fd: int) -> dict[str, str]:
        wanted = self.order["env"]
        worker = {
            "fd": fd,
            "trainer": self.trainer,
            "node": self._node,
            "generation": self.generation,
            "address": self._address,
            **self.order["worker"],
        }
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        return {
            **os.environ,
            "PATH": path,
            "PYTHONUNBUFFERED": "1",
            **wanted,
            "BFTRAINER_WORKER": json.dumps(worker),
        }

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # or not our library talking
            while line := await reader.readline():
                message = json.loads(line)
                if self.phase != "leaving" and message["type"] in ("ready", "joined", "finished"):
                    self.phase = {"joined": "member"}.get(message["type"], message["type"])
                if message["type"] == "joined":
                    self.joined = message["generation"]
                if message["type"] in ("progress", "finished", "left"):
                    self.last = message
                self._said(self, message)

    async def _wait(self) -> None:
        assert self._process is not None  # noqa: S101
        code = await self._process.wait()
        await asyncio.wait([self._tasks[0]], timeout=1.0)  # its last words come before its end
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self.kill()  # children that it left behind
        if self._writer is not None:
            self._writer.close()
        self._over(self, code)


def _die_with(parent: int) -> Callable[[], None]:
    """To be run in the child: have the kernel kill it when its agent dies, however that happens."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
