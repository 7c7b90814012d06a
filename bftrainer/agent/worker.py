"""One worker: the user's command, its log, and the socket to `bftrainer.elastic` in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bftrainer.agent.devices import DEVICE_FILES, told_to_use_cpu
from bftrainer.agent.files.last_state import LastState
from bftrainer.agent.files.logs import log_of, open_log
from bftrainer.agent.last_error import last_error
from bftrainer.agent.process import Program, ended, is_stopped, kill_group, spawn
from bftrainer.agent.seats import Seat
from bftrainer.agent.warm import WarmPool
from bftrainer.threads import in_thread
from bftrainer.wire.phases import Phase
from bftrainer.wire.rates import PART, Bucket
from bftrainer.wire.words import MAX_LINE, MERGED, fit, heard

log = logging.getLogger(__name__)

PER_S = 10.0
"""Messages per second of a worker, at most, without reports of progress."""
BURST_S = 20.0
"""Seconds' worth of messages that a worker may send at once after a quiet time."""
MAX_UNREAD = 16 * 1024 * 1024
"""Bytes of unread orders at which a worker is killed."""
POLL_S = 0.5
READ_S = 1.0
"""Seconds that a failed worker's end waits for its log, which may lie on a disk that hangs."""
STOPPED_S = 2.0
"""Seconds after which a stopped (SIGSTOP) worker is killed: its peers wait, and cannot tell why."""


MAX_FIGURES = 1_000
"""Figures of a worker to keep, by name."""
ALONE = Seat()
PHASE_AFTER = {"ready": Phase.READY, "joined": Phase.MEMBER, "finished": Phase.FINISHED}
"""The phase of a worker after this message."""


class WorkerProcess:
    """Starts at `start`; calls `said` with every message of the script and `over`, once, at the end.

    `phase` follows what the worker says, until it is told to leave. A gated worker waits before its script,
    warm, until `go`.
    """

    def __init__(
        self,
        order: dict[str, Any],
        node: str,
        address: str,
        warm: WarmPool,
        said: Callable[[WorkerProcess, dict[str, Any]], None],
        over: Callable[[WorkerProcess, int, str], None],
        seat: Seat = ALONE,
    ) -> None:
        self.order, self.seat = order, seat
        self.turns: dict[str, str] = {}  # where it takes turns with others; empty: it does not
        self.times = {"told": time.monotonic()}  # see `elastic.process.startup_times`
        self.trainer: int = order["trainer"]
        self.generation: int = order["generation"]
        self.run = 0  # that a gated worker was told to take part in
        self.phase = Phase.STARTING
        self.joined = 0  # the last generation that it became a member of
        self.last: dict[str, Any] = {}  # its last progress
        self._figures: dict[str, Any] = {}
        self.pid: int | None = None
        self._program = Program.of(order)
        self.node, self.address, self._warm = node, address, warm
        self._said, self._over = said, over
        self.state = LastState(node, self.send, lambda message: said(self, message))
        self._has_ended = False
        self._channel: socket.socket | None = None  # the worker's end, until it has it
        self.inode = 0  # of the worker's end
        self._output, self._log, self._log_start = -1, Path(), 0
        self._had_finished = False  # its work, before it was told to leave
        self.error = ""  # what its log tells of why it failed by itself, see `last_error`
        self._writer: asyncio.StreamWriter | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._reason, self._doomed = "", False
        self._rate = Bucket(PER_S, PER_S * BURST_S)
        self._nonsense = False  # it has written what is no message

    async def start(self) -> None:
        """Start the command; a gated one only as far as that is possible before `go`.

        Raises:
            OSError: no such command or working directory.
            FolderError: no log can be written.
        """
        path = log_of(Path(self.order["log"]), self.seat.local_rank)
        self._output = open_log(path, f"trainer {self.trainer} starts on {self.node}", self._program)
        self._log, self._log_start = path, os.fstat(self._output).st_size
        ours, self._channel = socket.socketpair()
        self.inode = os.fstat(self._channel.fileno()).st_ino
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        self._tasks = [asyncio.create_task(self._listen(reader))]
        if self._is_leaving():  # it was told so before there was a way to tell its script
            self._end(0)
            return
        gated = self.order["gated"]
        self.state.open(self.order)
        if self.order["warm"]:
            await self._warm.prepare(self._program)
            self.times["warm"] = time.monotonic()
            pid = await self._warm.fork(
                self._program,
                self._environment({}),
                title=title_of(self, self._program, path),
                gated=gated,
                channel=self._channel.fileno(),
                output=self._output,
                slots=self.state.slots,
            )
            if pid is not None:
                self._started(pid)
                return
        if gated and self.phase == Phase.LEAVING:
            self._end(0)
        elif gated:
            self._hear({"type": "ready"})
        else:
            self._start_cold(self._environment({}))

    def _is_leaving(self) -> bool:
        return self.phase == Phase.LEAVING

    def go(self, order: dict[str, Any]) -> None:
        """Run the script of a gated worker, with the environment that `order` adds.

        Raises:
            OSError: as `start`.
        """
        self.run = self.joined = order["run"]
        self.phase = Phase.MEMBER
        environ = self._environment(order["env"])
        if self.pid is None:
            self._start_cold(environ)
        else:
            self.send({"type": "go", "env": environ})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the script; nothing happens if it has ended."""
        self.state.told(message)
        if self._writer is None or self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > MAX_UNREAD:
            self.kill(f"left {MAX_UNREAD >> 20} MB of its orders unread and was killed")
        else:
            self._writer.write(json.dumps(message).encode() + b"\n")

    def stop(self, grace_s: float) -> None:
        """Tell the worker to end, and kill it after `grace_s`; a gated one gets SIGTERM, if it has begun."""
        waited = self.phase == Phase.READY
        self.leave_within(grace_s)
        if not self.order["gated"]:
            self.send({"type": "stop"})
        elif self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        elif waited:
            self._end(0)

    def leave_within(self, grace_s: float) -> None:
        """The worker must leave: kill it if it has not ended after `grace_s`."""
        self._had_finished = self._had_finished or self.phase == Phase.FINISHED
        self.phase = Phase.LEAVING
        if self._kill_timer is None:
            self._kill_timer = asyncio.get_running_loop().call_later(grace_s, self.kill)
        self.state.within(grace_s)

    def kill(self, reason: str = "") -> None:
        """Kill the worker and its process group. The first `reason` given is reported with its end."""
        self._reason, self._doomed = self._reason or reason, True
        if self.pid is not None and not self._has_ended:
            kill_group(self.pid)

    def end_now(self, reason: str) -> None:
        """Kill it; one that waits and has no process yet ends at once."""
        if self.pid is None and self.phase == Phase.READY:
            self._end(0)
        else:
            self.kill(reason)

    def fail(self, reason: str) -> None:
        """End it, as it could not be started for this reason."""
        self._reason = reason
        if self.pid is not None and not self._has_ended:
            kill_group(self.pid)
        self._end(127)

    def _start_cold(self, environ: dict[str, str]) -> None:
        assert self._channel is not None  # noqa: S101
        fd, slots = self._channel.fileno(), self.state.slots
        orders = json.loads(environ["BFTRAINER_WORKER"])
        environ = {**environ, "BFTRAINER_WORKER": json.dumps({**orders, "fd": fd, "slots": slots})}
        command, output, fds = self._program.command, self._output, (fd, *slots)
        with self._program.place() as workdir:
            self._started(spawn(command, workdir=workdir, environ=environ, output=output, fds=fds))

    def _started(self, pid: int) -> None:
        self.pid = pid
        self._release()
        if self.seat.cores:
            with contextlib.suppress(OSError):  # it has ended, or they belong to others now
                os.sched_setaffinity(pid, self.seat.cores)
        if self._doomed or (self.phase == Phase.LEAVING and self.order["gated"]):
            kill_group(pid)
        self._tasks += [asyncio.create_task(self._wait(pid)), asyncio.create_task(self._watch(pid))]

    def _release(self) -> None:
        """Close the worker's end of the channel and its log."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            os.close(self._output)

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        local = {"GLOO_SOCKET_IFNAME": "lo"} if self.address.startswith("127.") else {}
        environ = {**local, **self._program.environment(), **more, **dict(self.seat.env)}
        cpu = told_to_use_cpu(environ, {name: Path(name).exists() for name in DEVICE_FILES})
        return {**cpu, **environ, "BFTRAINER_WORKER": json.dumps(_about(self))}

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):  # it has gone
            while True:
                try:
                    if not (line := await reader.readline()):
                        return
                    message = heard(line)
                except ValueError as error:  # the script may have written anything, and without end
                    if not self._nonsense:
                        log.warning("trainer %d says what is no message: %s", self.trainer, error)
                    self._nonsense = True
                    continue
                self._hear(message)
                if message["type"] not in MERGED:  # a worker that says too much waits
                    await asyncio.sleep(self._rate.take(1 + len(line) // PART))

    def _hear(self, message: dict[str, Any]) -> None:
        phase = PHASE_AFTER.get(message["type"])
        late = phase == Phase.READY and self.phase != Phase.STARTING
        if phase is not None and self.phase != Phase.LEAVING and not late:
            self.phase = phase
        if message["type"] == "joined":
            self.joined = message.get("generation", 0)
        self.last, self._figures = _kept(self.last, self._figures, message)
        if self.state.heard(message):
            self._said(self, message)

    async def _watch(self, pid: int) -> None:
        """Kill the worker if it is stopped: `STOPPED_S` is too long to be a mistake."""
        stopped = 0.0
        while True:
            await asyncio.sleep(POLL_S)
            stopped = stopped + POLL_S if is_stopped(pid) else 0.0
            if stopped >= STOPPED_S:
                self.kill(f"stood still for {STOPPED_S:g} s (SIGSTOP) and was killed")

    async def _wait(self, pid: int) -> None:
        code = await ended(pid)
        self._has_ended = True
        await asyncio.wait([self._tasks[0]], timeout=1.0)  # its last words come before its end
        may_fail = self.phase != Phase.LEAVING or self._had_finished  # else nobody asks why it ended
        if code > 0 and not self._reason and may_fail:
            reading = in_thread("last-error", partial(last_error, self._log, self._log_start))
            done, _ = await asyncio.wait([reading], timeout=READ_S)
            self.error = reading.result() if done else ""
        await self.state.ended(self.order, is_leaving=self.phase == Phase.LEAVING)
        self._end(code)

    def _end(self, code: int) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._release()
        self.state.close()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if self._writer is not None:
            self._writer.close()
        self._over(self, code, fit(self._reason))


def _about(worker: WorkerProcess) -> dict[str, Any]:
    """Facts that `elastic` in a worker needs."""
    return {
        "fd": -1,
        "socket": worker.inode,
        "leads": True,
        "times": worker.times,
        "trainer": worker.trainer,
        "node": worker.node,
        "generation": worker.run or worker.generation,
        "address": worker.address,
        "local_rank": worker.seat.local_rank,
        "local_size": worker.seat.local_size,
        "device": worker.seat.index,
        "turns": worker.turns,
        **worker.order["worker"],
    }


def title_of(worker: WorkerProcess, program: Program, log: Path) -> str:
    """Title of a forked worker in the process table."""
    seat, words = worker.seat, " ".join(program.command)
    which = f"worker {seat.local_rank} of {seat.local_size}, " if seat.local_size > 1 else ""
    return f"{words} (bftrainer: trainer {worker.trainer} on {worker.node}, {which}{log})"


def _kept(
    last: dict[str, Any], figures: dict[str, Any], message: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last progress with all figures so far, and these: figures that were reported while the daemon was
    gone go with the worker's end."""
    new = message.get("metrics")
    if isinstance(new, dict) and len(both := {**figures, **new}) <= MAX_FIGURES:
        figures = both
    if message["type"] in ("progress", "finished", "left"):
        last = message
    return ({**last, "metrics": figures} if last and figures else last), figures
