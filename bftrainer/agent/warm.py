"""The agent's end of the warm pool: the process from which workers are forked (`elastic.programs.warm`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from bftrainer.agent.process import Program, ended, spawn

log = logging.getLogger(__name__)

UNSAFE = 3
"""The process's exit code where imports cannot be done before forking, see `elastic.programs.warm`."""
UP_S = 120.0


class WarmPool:
    """Keeps one warm process, with the environment that a spec asks for and its imports done.

    `of`: what the process table shows as its owner.
    """

    def __init__(self, of: str) -> None:
        self._of = of
        self._env: dict[str, str] | None = None  # of the spec for which it was started
        self._socket: socket.socket | None = None
        self.pid = 0
        self._scripts: set[str] = set()  # whose imports are done
        self._imports = True
        self._turn = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    async def prepare(self, program: Program) -> None:
        """Have a process ready from which this program can be forked, if it is one of this interpreter."""
        async with self._turn:
            if program.words is None:
                return
            if not self.pid or self._env != dict(program.env):
                self.close()
                await self._start(program)
            await self._import(program)

    async def fork(
        self,
        program: Program,
        environ: Mapping[str, str],
        *,
        title: str,
        gated: bool,
        channel: int,
        output: int,
        slots: Sequence[int] = (),
    ) -> int | None:
        """Fork a worker and return its pid; None if it cannot be forked and has to be started afresh.

        `title`: what the process table shows; `gated`: wait for `go` before the script; `channel`,
        `output` and `slots`: file descriptors of the worker's socket, log, and memory for snapshots.
        """
        async with self._turn:
            words = program.words
            if words is None or not self.pid or self._socket is None or self._env != dict(program.env):
                return None
            wanted = {
                "type": "fork",
                "title": title,
                "words": words,
                "workdir": program.folder or program.workdir,
                "own": bool(program.folder),
                "environ": dict(environ),
                "gated": gated,
            }
            try:
                socket.send_fds(self._socket, [json.dumps(wanted).encode()], [channel, output, *slots])
                answer = await self._receive()
            except OSError as error:
                log.warning("nothing can be forked from the warm process: %s", error)
                return None
            return int(answer["pid"]) if answer else None

    def close(self) -> None:
        """End the warm process; workers that came from it go on."""
        if self._socket is not None:
            self._socket.close()
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._socket, self.pid, self._scripts = None, 0, set()

    async def _start(self, program: Program) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            module = "bftrainer.elastic.programs.warm"
            command = (sys.executable, "-P", "-m", module, str(theirs.fileno()), self._of)
            try:
                self.pid = spawn(
                    command, workdir=None, environ=program.environment(), output=None, fds=(theirs.fileno(),)
                )
            except OSError as error:
                log.warning("no warm process: %s", error)
                ours.close()
                return
        self._socket, self._env = ours, dict(program.env)
        self._watcher = asyncio.create_task(self._watch(self.pid))
        try:
            async with asyncio.timeout(UP_S):
                up = await self._receive()
        except (OSError, TimeoutError):
            up = None
        if up is None:
            self.close()

    async def _watch(self, pid: int) -> None:
        if await ended(pid) == UNSAFE:
            log.warning("a script's imports start something: they are not done in the warm process any more")
            self._imports = False
        if pid == self.pid:
            self.pid = 0

    async def _import(self, program: Program) -> None:
        script = program.script
        if self._socket is not None and self._imports and script and script not in self._scripts:
            self._scripts.add(script)
            with contextlib.suppress(OSError):
                self._socket.send(json.dumps({"type": "import", "script": script}).encode())

    async def _receive(self) -> dict[str, int] | None:
        assert self._socket is not None  # noqa: S101
        data = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 16)
        return json.loads(data) if data else None
