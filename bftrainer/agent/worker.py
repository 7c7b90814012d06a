"""One worker: the user's command, its log, and the socket to `bftrainer.elastic` in it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bftrainer.agent.process import Program, ended, is_stopped, kill_group, spawn
from bftrainer.agent.warm import WarmPool

MAX_LINE = 16 * 1024 * 1024
LOOK_S = 0.5
STOPPED_S = 2.0
"""Who stands still (SIGSTOP) for so long is killed: its peers wait for it, and nobody would say so."""


class Worker:
    """Starts at `start`, reports through `said` and, once, `over`.

    `phase` follows what the worker says: starting, ready, member, finished; leaving is our order. A gated
    worker stands warm, ready, until `go`.
    """

    def __init__(
        self,
        order: dict[str, Any],
        node: str,
        address: str,
        warm: WarmPool,
        said: Callable[[Worker, dict[str, Any]], None],
        over: Callable[[Worker, int, str], None],
    ) -> None:
        self.order = order
        self.trainer: int = order["trainer"]
        self.generation: int = order["generation"]
        self.run = 0  # that it was told to take part in, for who is gated
        self.phase = "starting"
        self.joined = 0  # the last generation that it became a member of
        self.last: dict[str, Any] = {}  # its last progress
        self.pid: int | None = None
        self._program = Program.of(order)
        self._node, self._address, self._warm = node, address, warm
        self._said, self._over = said, over
        self._channel: socket.socket | None = None  # the worker's end, until it has it
        self._output = -1
        self._writer: asyncio.StreamWriter | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reason, self._doomed = "", False

    async def start(self) -> None:
        """Start the command; if it is gated, only as far as it can be without being told to go.

        Raises:
            OSError: no such command or working directory, or no log can be written.
        """
        path = Path(self.order["log"])
        own_folder(path.parent)
        self._output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        ours, self._channel = socket.socketpair()
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        self._tasks = [asyncio.create_task(self._listen(reader))]
        environ, gated = self._environment({}), self.order["gated"]
        if self.order["warm"]:
            await self._warm.prepare(self._program)
            pid = await self._warm.fork(
                self._program,
                environ,
                title=self._title(path),
                gated=gated,
                channel=self._channel.fileno(),
                output=self._output,
            )
            if pid is not None:
                self._started(pid)
                return
        if gated and self.phase == "leaving":
            self._end(0)
        elif gated:
            self._hear({"type": "ready"})
        else:
            self._start_cold(environ)

    def go(self, order: dict[str, Any]) -> None:
        """Run the script, with what `order` adds to its environment. Raises `OSError` as `start` does."""
        self.run = self.joined = order["run"]
        self.phase = "member"
        environ = self._environment(order["env"])
        if self.pid is None:
            self._start_cold(environ)
        else:
            self.send({"type": "go", "env": environ})

    def send(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def stop(self, grace_s: float) -> None:
        """Tell the worker to end; a script that is not ours to talk to gets a signal."""
        waited = self.phase == "ready"
        self.leave_within(grace_s)
        if not self.order["gated"]:
            self.send({"type": "stop"})
        elif self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        elif waited:
            self._end(0)

    def leave_within(self, grace_s: float) -> None:
        """The worker has been told to leave: kill it if it does not."""
        self.phase = "leaving"
        if self._kill_timer is None:
            self._kill_timer = asyncio.get_running_loop().call_later(grace_s, self.kill)

    def kill(self, reason: str = "") -> None:
        """Kill the worker and all its children that stayed in its process group."""
        self._reason, self._doomed = self._reason or reason, True
        if self.pid is not None:
            kill_group(self.pid)

    def fail(self, reason: str) -> None:
        """It could not be started."""
        self._reason = reason
        self._end(127)

    def _title(self, path: Path) -> str:
        """What the process table shows of a forked worker."""
        words = " ".join(self._program.command)
        return f"{words} (bftrainer: trainer {self.trainer} on {self._node}, {path})"

    def _start_cold(self, environ: dict[str, str]) -> None:
        assert self._channel is not None  # noqa: S101
        fd = self._channel.fileno()
        orders = json.loads(environ["BFTRAINER_WORKER"])
        environ = {**environ, "BFTRAINER_WORKER": json.dumps({**orders, "fd": fd})}
        self._started(
            spawn(
                self._program.command,
                workdir=self._program.workdir,
                environ=environ,
                output=self._output,
                fd=fd,
            )
        )

    def _started(self, pid: int) -> None:
        self.pid = pid
        self._release()
        if self._doomed or (self.phase == "leaving" and self.order["gated"]):
            kill_group(pid)
        self._tasks += [asyncio.create_task(self._wait(pid)), asyncio.create_task(self._watch(pid))]

    def _release(self) -> None:
        """Close what is the worker's."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            os.close(self._output)

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        worker = {
            "fd": -1,
            "trainer": self.trainer,
            "node": self._node,
            "generation": self.run or self.generation,
            "address": self._address,
            **self.order["worker"],
        }
        local = {"GLOO_SOCKET_IFNAME": "lo"} if self._address.startswith("127.") else {}
        return {
            **local,
            **self._program.environment(),
            **more,
            "BFTRAINER_WORKER": json.dumps(worker),
        }

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # or not our library talking
            while line := await reader.readline():
                self._hear(json.loads(line))

    def _hear(self, message: dict[str, Any]) -> None:
        phase = {"ready": "ready", "joined": "member", "finished": "finished"}.get(message["type"])
        if phase and self.phase != "leaving" and (phase != "ready" or self.phase == "starting"):
            self.phase = phase
        if message["type"] == "joined":
            self.joined = message["generation"]
        if message["type"] in ("progress", "finished", "left"):
            self.last = message
        self._said(self, message)

    async def _watch(self, pid: int) -> None:
        """Kill who stands still: `STOPPED_S` is long enough for nobody to do it by mistake."""
        stopped = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            stopped = stopped + LOOK_S if is_stopped(pid) else 0.0
            if stopped >= STOPPED_S:
                self.kill(f"stood still for {STOPPED_S:g} s (SIGSTOP) and was killed")

    async def _wait(self, pid: int) -> None:
        code = await ended(pid)
        await asyncio.wait([self._tasks[0]], timeout=1.0)  # its last words come before its end
        self._end(code)

    def _end(self, code: int) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._release()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if self._writer is not None:
            self._writer.close()
        self._over(self, code, self._reason)


def own_folder(folder: Path) -> None:
    """Make a folder that nobody else can look into. Raises `OSError`, also if it is somebody else's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(folder))
