"""One machine as a cluster: its "nodes" are slots, their idleness is played from a log.

The log takes the part of the main scheduler: when it says that a node is taken, the pilot there is killed
with SIGKILL, with its agent and workers, without notice. Pilots are ordinary processes in sessions of their
own. They survive the daemon as a batch job would, and a restarted daemon finds them in the process table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from types import MappingProxyType

from bftrainer.errors import NoRoomError, SchedulerError
from bftrainer.files import private_file
from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted, MainJob
from bftrainer.ports import Clock
from bftrainer.schedulers.local.gpus import count_of
from bftrainer.schedulers.local.main_jobs import MainJobsFile
from bftrainer.threads import in_thread

log = logging.getLogger(__name__)

AGENT = "bftrainer.agent"
MAX_PASSES = 20
DYING_S = 0.005
"""Between two looks for what a kill has left: to look at all processes takes much of the processor."""
RETRY_S = 0.1
"""When pilots that could not be killed are tried again."""
MAX_READ = 64 * 1024
"""A command line can be a mapping of gigabytes."""
SETTLED_S = 10.0
"""Seconds after our start for which a pilot that an earlier daemon just started may lack its name."""


def start(
    words: Sequence[str], log: Path, secret: str, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start an agent that prints to `log`, whose folder is made, and tell it its secret. Waits for the disk.
    `environ` is added to its environment.

    Raises:
        OSError: it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(private_file(log), "ab") as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **environ},
        )
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError), child.stdin as told:  # it may have been killed
            told.write(f"{secret}\n".encode())
    return child


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """Maps the log's time to ours: log time = begin + (now - origin) * speed."""

    begin: float
    origin: float
    speed: float

    def log_time(self, now: float) -> float:
        """The log time at `now`."""
        return self.begin + (now - self.origin) * self.speed

    def wall_time(self, log_time: float) -> float:
        """Return the Unix time (s) of `log_time`."""
        return self.origin + (log_time - self.begin) / self.speed


class LocalScheduler:
    """Implements `ports.Scheduler` with processes of this machine: `changes` make `nodes` idle and busy.

    `environ` is what is added to the environment of each node's pilots. Beside the log, `jobs` takes nodes.
    """

    def __init__(
        self,
        *,
        nodes: frozenset[str],
        changes: Iterable[NodesChanged],
        playback: Playback,
        agents_at: str,
        log_dir: Path,
        orphan_s: float,
        clock: Clock,
        environ: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        jobs: MainJobsFile | None = None,
    ) -> None:
        self._environ, self._queue = environ, jobs
        self._gpus = {node: count_of(own) for node, own in environ.items()}
        self._nodes, self._changes, self._playback = nodes, iter(changes), playback
        self._agents_at, self._log_dir, self._orphan_s, self._clock = agents_at, log_dir, orphan_s, clock
        self._idle: frozenset[str] = frozenset()
        self._taken: frozenset[str] = frozenset()  # nodes whose pilots are yet to be killed
        self._jobs = count(1)
        self._took: list[MainJob] = []  # main jobs that wait until the pilots on their nodes are killed
        self._on: dict[str, str] = {}  # node -> the main job of the log that has it
        self._main: list[MainJob] = []  # those that have started since the last poll
        self._starting: set[Pilot] = set()  # in threads, and still wanted
        self._doomed: set[Pilot] = set()  # not wanted any more when they had started
        self._next = next(self._changes, None)  # the change to come; None: the log is over
        self._children: list[tuple[subprocess.Popen[bytes], Pilot]] = []
        self._inherited: dict[int, Pilot] = {}  # pid -> pilot that an earlier daemon started
        self._born = time.monotonic()
        self._player: asyncio.Task[None] | None = None

    async def poll(self) -> Snapshot:
        """The slots as the log has them now. The first poll begins to play the log.

        Raises:
            SchedulerError: the process table cannot be read.
        """
        self._advance()
        if self._player is None and self._next is not None:
            self._player = asyncio.create_task(self._play())
        waiting = self._queue.waiting if self._queue else ()
        jobs = {**self._on, **(self._queue.on if self._queue else {})}
        free = self._idle - (self._queue.wanted - self._held() if self._queue else frozenset())
        return Snapshot(
            time=self._clock.now(),
            nodes=tuple(
                Node(
                    name=name,
                    state=NodeState.IDLE if name in free else NodeState.BUSY,
                    gpus=self._gpus.get(name, 0),
                    job="" if name in free else jobs.get(name, ""),
                )
                for name in sorted(self._nodes)
            ),
            claims=self._queue.claims(self._held()) if self._queue else (),
            pilots=await self.pilots(),
            main=self._begun() + tuple(replace(job, on=frozenset()) for job in waiting),
            waiting=frozenset(job.job for job in (*self._took, *waiting)),
        )

    def _held(self) -> frozenset[str]:
        """Return the nodes with our pilots, also those that start now."""
        return frozenset(pilot.node for pilot in (*(pilot for _, pilot in self._running()), *self._starting))

    def _begun(self) -> tuple[MainJob, ...]:
        """Return the main jobs of the log: each of its changes stands for one, which starts when the
        pilots there have been killed. Those that started since the last poll, and those that wait for it."""
        begun, self._main = tuple(self._main), []
        return begun + tuple(replace(job, on=frozenset()) for job in self._took)

    async def pilots(self) -> tuple[Pilot, ...]:
        """Our pilots in the process table."""
        return tuple(pilot for _, pilot in self._running())

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Start a pilot as a process; `limit_s` is ignored, the log ends pilots.

        Raises:
            NoRoomError: the node is busy.
            SchedulerError: the process cannot be started.
        """
        self._advance()
        if pilot.node not in self._idle:
            raise NoRoomError(f"{pilot.node} is busy")
        self._starting.add(pilot)
        await asyncio.shield(asyncio.create_task(self._start(pilot, secret)))  # a child is never lost

    async def _start(self, pilot: Pilot, secret: str) -> None:
        """Start a pilot in a thread, as its log may lie where nothing answers. It is killed if it is not
        wanted any more by then."""
        words = [
            *(sys.executable, "-P", "-m", AGENT, "--node", pilot.node, "--tag", pilot.tag),
            *("--daemon", self._agents_at, "--orphan-s", str(self._orphan_s)),
        ]
        output = self._log_dir / f"agent-{pilot.node}.log"
        threads = str(max(1, (os.cpu_count() or 1) // len(self._nodes)))
        threads = os.environ.get("OMP_NUM_THREADS", threads)
        environ = {"OMP_NUM_THREADS": threads, **self._environ.get(pilot.node, {})}
        try:
            child = await in_thread("pilot", lambda: start(words, output, secret, environ))
        except (OSError, RuntimeError) as error:
            raise SchedulerError(f"cannot start a pilot on {pilot.node}: {error}") from error
        finally:
            wanted = pilot in self._starting
            self._starting.discard(pilot)
        self._children.append((child, pilot))
        if not wanted:
            self._doomed.add(pilot)
            self._advance()
            raise NoRoomError(f"{pilot.node} was taken, or its pilot cancelled, while that started")

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """Kill pilots with all their processes; one that starts now, as soon as it has."""
        self._starting.difference_update(pilots)
        leaders = [pid for pid, running in self._running() if running in pilots]
        if leaders:  # each is looked for among all processes of the machine
            await in_thread("cancel", lambda: _kill_sessions(leaders))
        self._reap()

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Nothing is known here: pilots' log files, on this machine, say why they failed."""
        return {}

    async def preempted(self, pilots: Sequence[Pilot]) -> Collection[Pilot]:
        """None: pilots of nodes that are taken are killed at once, and their agents say nothing."""
        return ()

    async def accounted(self, since: float) -> Accounted:
        """Nothing but the log is known here."""
        return Accounted(why="the local scheduler keeps no accounts")

    async def close(self) -> None:
        """Stop playing the log; pilots go on."""
        if self._player is not None:
            self._player.cancel()
        self._reap()

    async def _play(self) -> None:
        """Take nodes away at the very moment of the log."""
        while self._next is not None:
            due = self._playback.wall_time(self._next.time)
            until_due = max(0.0, due - self._clock.now())
            await asyncio.sleep(min(RETRY_S, until_due) if self._taken or self._doomed else until_due)
            try:
                self._advance()
            except SchedulerError as error:  # what is taken stays so, and is tried again
                log.error("cannot kill the pilots of nodes that are taken: %s", error)
        log.warning("the log is over: %d nodes stay idle from now on", len(self._idle))

    def _advance(self) -> None:
        now = self._playback.log_time(self._clock.now())
        while self._next is not None and self._next.time <= now:
            self._idle = (self._idle - self._next.left) | self._next.joined
            self._taken |= self._next.left
            for node in self._next.joined:
                self._on.pop(node, None)
            if self._next.left:
                due, name = self._playback.wall_time(self._next.time), f"log-{next(self._jobs)}"
                self._took.append(_main_job(name, due, self._next.left))
                self._on |= dict.fromkeys(self._next.left, name)
            self._starting = {pilot for pilot in self._starting if pilot.node not in self._next.left}
            self._next = next(self._changes, None)
        if self._queue is not None:
            self._move_jobs(self._queue)
        if self._taken or self._doomed:
            for pid, pilot in self._running():
                if pilot.node in self._taken or pilot in self._doomed:
                    _kill_session(pid)
            self._taken = frozenset()
            self._doomed.clear()
        begun = self._clock.now()
        self._main += [replace(job, started=max(begun, job.submitted or begun)) for job in self._took]
        self._took.clear()
        self._reap()

    def _move_jobs(self, queue: MainJobsFile) -> None:
        """Let main jobs end, and those start that can or need not wait."""
        moved = queue.advance(self._clock.now(), self._held())
        began = frozenset[str]().union(*(job.on for job in (*moved.starting, *moved.taking)))
        self._idle = (self._idle | moved.freed) - began
        self._main += moved.starting
        self._took += moved.taking
        self._taken |= frozenset[str]().union(*(job.on for job in moved.taking))
        self._starting = {pilot for pilot in self._starting if pilot.node not in self._taken}

    def _running(self) -> list[tuple[int, Pilot]]:
        """Our pilots in the process table: (pid, pilot), of this daemon and earlier ones."""
        self._reap()
        settled = time.monotonic() - self._born > SETTLED_S
        found = ((pid, self._pilot(pid)) for pid in (self._inherited if settled else _pids()))
        self._inherited = {pid: pilot for pid, pilot in found if pilot is not None}
        children = {child.pid: pilot for child, pilot in self._children}  # known before they have a name
        return sorted({**self._inherited, **children}.items())

    def _pilot(self, pid: int) -> Pilot | None:
        """Return our pilot that a process is. Others' processes may be called as they like."""
        if not _is_own(pid):
            return None
        words = (_read(pid, "cmdline") or "").split("\0")
        if AGENT not in words or self._agents_at not in words or not Path(words[0]).name.startswith("python"):
            return None
        option = dict(pairwise(words))
        tag, node = option.get("--tag"), option.get("--node")
        return Pilot(tag=tag, node=node) if tag and node in self._nodes else None

    def _reap(self) -> None:
        self._children = [entry for entry in self._children if entry[0].poll() is None]


def _main_job(name: str, due: float, nodes: frozenset[str]) -> MainJob:
    return MainJob(job=name, nodes=len(nodes), submitted=due, on=nodes)


def _pids() -> list[int]:
    """The numbers of all processes. Raises `SchedulerError` if they cannot be listed."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208  of thousands
    except OSError as error:
        raise SchedulerError(f"cannot list processes: {error.strerror}") from error


def _is_own(pid: int) -> bool:
    """Return whether a process is of our user, which may hide what is its own: then the folder is root's."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return False
    own = os.geteuid()
    return owner == own or (owner == 0 and f"\nUid:\t{own}\t" in (_read(pid, "status") or ""))


def _read(pid: int, file: str) -> str | None:
    """The first `MAX_READ` bytes of a file of a process in /proc; None if the process has ended, or is hidden
    from us.

    Raises:
        SchedulerError: it cannot be read now, as when no descriptor is left; the process may be there.
    """
    try:
        with Path(f"/proc/{pid}/{file}").open("rb", buffering=0) as opened:
            return (opened.read(MAX_READ) or b"").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    except OSError as error:
        raise SchedulerError(f"cannot read of process {pid}: {error.strerror}") from error


def _kill_sessions(leaders: Iterable[int]) -> None:
    """In a thread, which can wait for processes to die."""
    for leader in leaders:
        _kill_session(leader, pause_s=DYING_S)


def _kill_session(leader: int, pause_s: float = 0.0) -> None:
    """Send SIGKILL to every process of a pilot: none may stay on a node that is taken, in whatever session.

    Repeat until none is found, as a process may fork meanwhile. The leader goes last: it is the agent, which
    adopts what its descendants leave behind.
    """
    _send(leader, signal.SIGSTOP)
    for _ in range(MAX_PASSES):
        found = _below(leader)
        if not found:
            break
        for pid in found:
            _send(pid, signal.SIGKILL)
        time.sleep(pause_s)
    _send(leader, signal.SIGKILL)


def _send(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sign)


def _below(leader: int) -> set[int]:
    """The living processes of a leader's session, and all that come from these or from the leader."""
    children: dict[int, list[int]] = {}
    todo = [leader]
    for pid in _pids():
        parent, session = _parent_and_session(pid)
        children.setdefault(parent, []).append(pid)
        if session == leader:
            todo.append(pid)
    found: set[int] = set()
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found - {leader}


def _parent_and_session(pid: int) -> tuple[int, int]:
    """Return both ids of a living process; zeros for one that is dead and not reaped yet."""
    found = _read(pid, "stat")
    if not found:
        return 0, 0
    state, parent, _, session = found.rpartition(")")[2].split()[:4]
    return (0, 0) if state == "Z" else (int(parent), int(session))
