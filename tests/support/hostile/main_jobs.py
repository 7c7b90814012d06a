"""A main scheduler whose jobs want nodes that we hold, around the scheduler of this machine.

A job is a line of JSON in a file: {"job", "nodes", "count", "run_s", "arrived"}. It starts as soon as `count`
of its `nodes` have no pilot, and keeps them for `run_s`. Until then polls show it as a claim. For each job
that starts a line goes to a second file: what it asked for, when a poll first showed its claim (`seen`) and
when it `started`; times are monotonic, and the same for all processes of a machine. Two more figures depend
on no other process: how long the daemon's loop computed between `seen` and `started` (`cpu_s`), and after how
many `polls` a pilot on its nodes was last cancelled. Only polls in a row count in which nothing but pilots
kept the job from its nodes: jobs of others wait for each other, too, as long as they run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from bftrainer.errors import NoRoomError
from bftrainer.model.machine import Claim, NodeState, Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Scheduler


@dataclass(slots=True)
class _Waiting:
    asked: dict[str, Any]
    seen: float | None = None
    computed: float = 0.0  # by the loop's thread, when it was seen
    polls: int = 0  # in a row, with nothing but pilots in its way
    until_cancelled: int = 0  # the most of these before a pilot was cancelled


class MainJobs:
    """Implements `ports.Scheduler`: `inner`, and jobs of others that come and go."""

    def __init__(self, inner: Scheduler, asked: TextIO, started: Path) -> None:
        self._inner, self._asked, self._started = inner, asked, started
        self._waiting: list[_Waiting] = []
        self._busy: dict[str, float] = {}  # node -> until when

    async def poll(self) -> Snapshot:
        """What the scheduler of this machine shows, with jobs and their claims."""
        self._waiting += [_Waiting(json.loads(line)) for line in self._asked]
        await self._start()
        found, now = await self._inner.poll(), time.monotonic()
        held = {pilot.node for pilot in found.pilots}
        claims, wanted = [], 0
        for waiting in self._waiting:
            nodes = set(waiting.asked["nodes"]) - self._busy.keys()
            wanted += waiting.asked["count"]
            missing = waiting.asked["count"] - len(nodes - held)
            claims.append(Claim(job=waiting.asked["job"], nodes=frozenset(nodes & held), count=missing))
            if waiting.seen is None:
                waiting.seen, waiting.computed = now, time.thread_time()
            waiting.polls = waiting.polls + 1 if wanted <= len(nodes) else 0
        nodes = tuple(
            replace(node, state=NodeState.BUSY, why="a job runs there") if node.name in self._busy else node
            for node in found.nodes
        )
        return replace(found, nodes=nodes, claims=tuple(claims))

    async def _start(self) -> None:
        """Start the jobs that have room; forget those that have ended."""
        now = time.monotonic()
        self._busy = {node: until for node, until in self._busy.items() if until > now}
        taken = {pilot.node for pilot in await self._inner.pilots()} | self._busy.keys()
        for waiting in list(self._waiting):
            free = [node for node in waiting.asked["nodes"] if node not in taken]
            if len(free) < waiting.asked["count"]:
                continue
            self._waiting.remove(waiting)
            given = free[: waiting.asked["count"]]
            taken |= set(given)
            self._busy |= dict.fromkeys(given, now + waiting.asked["run_s"])
            with self._started.open("a") as out:
                line = {
                    **waiting.asked,
                    "seen": waiting.seen,
                    "started": now,
                    "polls": waiting.until_cancelled,
                }
                line["cpu_s"] = 0.0 if waiting.seen is None else time.thread_time() - waiting.computed
                out.write(json.dumps(line) + "\n")

    async def pilots(self) -> tuple[Pilot, ...]:
        """Our pilots."""
        return await self._inner.pilots()

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Start a pilot. Raises `NoRoomError` where a job of others runs."""
        await self._start()
        if pilot.node in self._busy:
            raise NoRoomError(f"{pilot.node} is busy")
        await self._inner.submit(pilot, secret, limit_s)

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """End pilots; jobs that waited for their nodes start."""
        going = {pilot.node for pilot in pilots}
        for waiting in self._waiting:
            if going & set(waiting.asked["nodes"]):
                waiting.until_cancelled = max(waiting.until_cancelled, waiting.polls)
        await self._inner.cancel(pilots)
        await self._start()

    async def accounted(self, since: float) -> Accounted:
        return Accounted()

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Why pilots failed."""
        return await self._inner.failures(pilots)

    async def preempted(self, pilots: Sequence[Pilot]) -> Collection[Pilot]:
        """Whose nodes main jobs took."""
        return await self._inner.preempted(pilots)

    async def close(self) -> None:
        """Stop."""
        await self._inner.close()
