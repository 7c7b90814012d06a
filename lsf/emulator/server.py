"""The server: answers the commands on a Unix socket, lets time pass and runs real jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lsf.emulator import control
from lsf.emulator.clock import Clock
from lsf.emulator.commands.bsub import wants_script
from lsf.emulator.commands.context import Answer, Call, Lsf
from lsf.emulator.commands.registry import COMMANDS, answer
from lsf.emulator.core.effects import Signal, Start
from lsf.emulator.processes import Processes
from lsf.emulator.text import acct, plan

SOCKET = "socket"
MOST_LINE = 64_000_000
HANG_S = 86_400.0
PEER = struct.Struct("3i")


class Server:
    """One emulated LSF in one folder."""

    def __init__(self, folder: Path, lsf: Lsf, clock: Clock, *, host: str = "login1") -> None:
        """`host` is where commands are called from, as LSF names it."""
        self._folder, self._lsf, self._clock, self._host = folder, lsf, clock, host
        self._processes = Processes(folder, self._watch)
        self._timer: asyncio.TimerHandle | None = None
        self._stop = asyncio.Event()
        self._planned = -1
        lsf.cluster.state.finished = []

    async def serve(self, *, until_eof: bool = False) -> None:
        """Serve until it is told to stop or, with `until_eof`, standard input ends. Jobs end with it."""
        loop = asyncio.get_running_loop()
        path = self._folder / SOCKET
        server = await asyncio.start_unix_server(self._talk, path, limit=MOST_LINE)
        path.chmod(0o777)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        if until_eof:
            loop.add_reader(sys.stdin.fileno(), self._stop.set)
        try:
            self.turn()
            await self._stop.wait()
        finally:
            server.close()
            path.unlink(missing_ok=True)
            self._processes.end_all()

    def stop(self) -> None:
        """Have `serve` return."""
        self._stop.set()

    @property
    def lsf(self) -> Lsf:
        """The LSF that is served."""
        return self._lsf

    @property
    def clock(self) -> Clock:
        """Its time."""
        return self._clock

    def turn(self) -> None:
        """Let happen what is due, tell real jobs, and come back when the next thing is due."""
        cluster = self._lsf.cluster
        cluster.advance(self._clock.now())
        while cluster.state.effects:
            effects, cluster.state.effects = cluster.state.effects, []
            for effect in effects:
                self._do(effect)
        self._write()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        upcoming = cluster.next_time()
        wait = None if upcoming is None else self._clock.wait_s(upcoming)
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(min(wait, 3600.0), self.turn)

    def _write(self) -> None:
        """Write the accounting of jobs that have ended and, where there is a planner, its file."""
        state = self._lsf.cluster.state
        if state.finished:
            with (self._folder / acct.FILE).open("a", encoding="utf-8") as file:
                file.writelines(acct.record(job, state) for job in state.finished)
            state.finished.clear()
        if state.site.planner and self._planned != state.version:
            self._planned = state.version
            text = plan.text(plan.rows(state), state.site.name, state.now, os.getpid())
            part = self._folder / f"{plan.FILE}.new"
            part.write_text(text, encoding="utf-8")
            part.rename(self._folder / plan.FILE)

    def _do(self, effect: Start | Signal) -> None:
        cluster = self._lsf.cluster
        job = cluster.state.jobs.get(effect.job)
        if job is None or job.run != effect.run:
            return
        if isinstance(effect, Signal):
            self._processes.signal(effect.job, effect.run, effect.number)
            return

        def ended(code: int) -> None:
            """Tell the cluster that the run is over."""
            cluster.exited(job, effect.run, code, self._clock.now())
            if self._processes_end:
                asyncio.get_running_loop().call_soon(self.turn)

        pid = self._processes.start(job, cluster.state, ended)
        if pid:
            cluster.launched(job, effect.run, pid, self._clock.now())

    @property
    def _processes_end(self) -> bool:
        return not self._stop.is_set()

    def _watch(self, pid: int, ended: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(pid)

        def gone() -> None:
            """Return after the process has been reaped."""
            loop.remove_reader(descriptor)
            os.close(descriptor)
            ended()

        loop.add_reader(descriptor, gone)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            said = json.loads(await reader.readline())
            uid = _peer(writer)
            if "control" in said:
                reply = control.carry_out(self, said, allowed=uid in (0, os.geteuid()))
                self.turn()
            else:
                reply = await self._command(said, uid, reader, writer)
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _command(
        self, said: Mapping[str, Any], uid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        name, text = said["command"], ""
        if name not in COMMANDS:
            return {"out": "", "err": f"{name}: no command of the emulated LSF\n", "code": 127}
        if name == "bsub" and wants_script(said["words"]) and not self._lsf.manners.hang:
            writer.write(b'{"stdin": true}\n')
            await writer.drain()
            text = json.loads(await reader.readline())
        call = Call(
            lsf=self._lsf,
            words=tuple(said["words"]),
            now=self._clock.now(),
            user=_name(uid),
            uid=uid,
            cwd=said["cwd"],
            env=said["env"],
            host=self._host,
            read=lambda: text,
        )
        made: Answer = answer(name, call)
        self.turn()
        if made.hang:
            writer.write(json.dumps({"err": made.err}).encode() + b"\n")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), HANG_S)  # until the client is gone
        return {"out": made.out, "err": made.err, "code": made.code, "retry_s": made.retry_s}


def _peer(writer: asyncio.StreamWriter) -> int:
    link: socket.socket = writer.get_extra_info("socket")
    _, uid, _ = PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return int(uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
