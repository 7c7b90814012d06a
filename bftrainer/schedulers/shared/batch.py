"""One batch system, whichever it is: its pilots are jobs that commands submit, show and end."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

from bftrainer.errors import NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Node, Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Clock
from bftrainer.schedulers.shared.cancelling import Cancelling
from bftrainer.schedulers.shared.claims import ClaimPatience, Claims, Known
from bftrainer.schedulers.shared.command import CommandOutput

Found = TypeVar("Found")
REMEMBERED = 10_000
"""Jobs remembered that we have ended, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRequest:
    """A pilot's submission: a command, its standard input, and what its environment has besides."""

    words: list[str]
    stdin: str
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchView:
    """One poll: the snapshot, and what main jobs need that should start now."""

    snapshot: Snapshot
    found: Claims

    def node(self, name: str) -> Node | None:
        """A node of the snapshot; None: it has none of this name."""
        return next((node for node in self.snapshot.nodes if node.name == name), None)

    def shifted(self, seconds: float) -> Self:
        """The same with all times later by `seconds`: a batch system tells times of its machine's clock,
        which may be ahead of the daemon's."""
        if not seconds:
            return self

        def moved(moment: float | None) -> float | None:
            return None if moment is None else moment + seconds

        last = self.snapshot
        main = (replace(job, submitted=moved(job.submitted), started=moved(job.started)) for job in last.main)
        snapshot = replace(
            last,
            time=last.time + seconds,
            nodes=tuple(replace(node, until=moved(node.until), ends=moved(node.ends)) for node in last.nodes),
            pilots=tuple(replace(pilot, ends=moved(pilot.ends)) for pilot in last.pilots),
            main=tuple(main),
        )
        return replace(self, snapshot=snapshot)


View = TypeVar("View", bound=BatchView)


class TextThread:
    """A thread that reads what commands print, beside the event loop: users can make that long."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name)

    async def __call__(self, read: Callable[[], Found]) -> Found:
        """Return the result of `read`, which runs there."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, read)

    def close(self) -> None:
        """End the thread; what it has not begun is not read."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class BatchScheduler(ABC, Generic[View]):
    """Implements `ports.Scheduler` for one batch system; methods without a docstring do what it says there.

    A batch system's own class supplies the methods that are abstract here. It reads
    `view`, the last poll's, `seen`, our pilots as last listed, and `ended`, the last jobs
    that we have told to end, with the monotonic time at which each first was.
    Its module `make` also has `batch(settings, agents_at, instance, clock)`, which makes one that creates
    nothing. Nodes are kept free for a main job that should start for `claim_patience_s`.
    """

    def __init__(self, clock: Clock, claim_patience_s: float) -> None:
        self._clock = clock
        self._patience = ClaimPatience(claim_patience_s)
        self._jobs: dict[Pilot, set[str]] = {}  # of pilots as last seen
        self._submitted: dict[str, tuple[Pilot, str]] = {}  # node -> the last pilot for it, and its job
        self.ended: dict[str, float] = {}
        self._cancelling = Cancelling(lambda: self._jobs, self.pilots, self._end)
        self.view: View | None = None
        self.seen: tuple[Pilot, ...] = ()

    @abstractmethod
    async def query(self, known: Callable[[float, float], Known]) -> View:
        """Look at the machine. `known` tells what earlier polls say of main jobs at a time, and how far the
        machine's clock is ahead; the view has the times of our own clock."""

    @abstractmethod
    async def listed(self) -> tuple[Pilot, ...]:
        """Our pilots in the queue; one that was submitted twice is there twice."""

    @abstractmethod
    def request(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> PilotRequest:
        """Return a pilot's submission, with its node's resources as of the last poll.

        Raises:
            SchedulerError: there can be no such pilot.
        """

    @abstractmethod
    async def order(self, request: PilotRequest) -> CommandOutput:
        """Run what submits a pilot."""

    @abstractmethod
    def submitted(self, output: CommandOutput) -> str:
        """The number of the job that a command has submitted.

        Raises:
            UnsureError: the job may have been accepted.
            SchedulerError: it was refused.
        """

    @abstractmethod
    async def end(self, user: str, jobs: Collection[str]) -> str:
        """End a user's jobs, "" is our own; returns why that failed, "" if it did not."""

    @abstractmethod
    async def causes(self, jobs: Mapping[Pilot, str]) -> Mapping[Pilot, str]:
        """Return why these jobs of pilots have failed; "" for one that has not."""

    @abstractmethod
    async def taken(self, jobs: Mapping[Pilot, str]) -> Collection[Pilot]:
        """Those of these jobs of pilots that the batch system itself has ended, for other jobs."""

    @abstractmethod
    async def accounted(self, since: float) -> Accounted: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def poll(self) -> Snapshot:
        view = await self.query(self._patience.known)
        self._see(view.snapshot.pilots)
        self.view = view
        self._patience.remember(view.found, view.snapshot.time)
        return view.snapshot

    async def pilots(self) -> tuple[Pilot, ...]:
        self._see(await self.listed())
        return self.seen

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Submit a pilot, as its user.

        Raises:
            NoRoomError: the last poll showed the node in use, or its hole is too short.
            UnsureError: the job may have been accepted. `CrowdedError` if the batch system takes none at all.
            SchedulerError: it was refused.
        """
        if self.view and (node := self.view.node(pilot.node)) and node.why:
            raise NoRoomError(f"{pilot.node} is not free: {node.why}")
        request = self.request(pilot, secret, limit_s)
        try:
            output = await self.order(request)
        except UnsureError:
            raise
        except SchedulerError as error:
            raise UnsureError(str(error)) from error
        number = self.submitted(output)
        # a user may have put any job's number there: the queue tells that of its pilot by name
        if not pilot.user:
            self._jobs.setdefault(pilot, set()).add(number)
        self._submitted[pilot.node] = pilot, number

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """Cancel pilots, each as its user.

        Raises:
            SchedulerError: some could not be cancelled. `KeptError` if a user may have kept some.
        """
        await self._cancelling.cancel(pilots)

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Return why pilots that are gone have failed, as long as the batch system remembers their jobs;
        nothing of those that we have killed."""
        known = {pilot: self._number(pilot) for pilot in pilots}
        jobs = {pilot: job for pilot, job in known.items() if job and job not in self.ended}
        causes = [await self.causes(own) for own in _by_user(jobs)]
        return {pilot: why for some in causes for pilot, why in some.items() if why}

    async def preempted(self, pilots: Sequence[Pilot]) -> Collection[Pilot]:
        """Those of these pilots that the batch system has ended for main jobs."""
        jobs = {pilot: job for pilot in pilots if (job := self._number(pilot))}
        return [pilot for own in _by_user(jobs) for pilot in await self.taken(own)]

    async def _end(self, user: str, jobs: Collection[str]) -> str:
        now = time.monotonic()
        for job in jobs:
            self.ended.setdefault(job, now)
        while len(self.ended) > REMEMBERED:
            del self.ended[next(iter(self.ended))]
        return await self.end(user, jobs)

    def _number(self, pilot: Pilot) -> str:
        """The job of a pilot, even of one that no poll has shown; "" if it is not known."""
        last, number = self._submitted.get(pilot.node, (None, ""))
        return pilot.job or (number if last == pilot else "")

    def _see(self, pilots: Sequence[Pilot]) -> None:
        self.seen = tuple(pilots)
        self._jobs = defaultdict(set)
        for pilot in pilots:
            self._jobs[pilot].add(pilot.job)


def _by_user(jobs: Mapping[Pilot, str]) -> Collection[Mapping[Pilot, str]]:
    """The jobs of each user, to be asked for apart: what a batch system prints of a job holds words of its
    user's own, such as a comment, and these may look like the end of another user's job."""
    found: defaultdict[str, dict[Pilot, str]] = defaultdict(dict)
    for pilot, job in jobs.items():
        found[pilot.user][pilot] = job
    return found.values()
