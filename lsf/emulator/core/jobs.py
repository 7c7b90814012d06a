"""A job in the emulated cluster, with its times and what has happened to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lsf.emulator.core.model import ENDED, STARTED, Request, State
from lsf.emulator.core.placing import Placement

RUN_LIMIT, PREEMPT, OWNER, ADMIN = "TERM_RUNLIMIT", "TERM_PREEMPT", "TERM_OWNER", "TERM_ADMIN"
HOST_FAILED = "TERM_EXTERNAL_SIGNAL"
WORDS = {
    RUN_LIMIT: "job killed after reaching LSF run time limit",
    OWNER: "job killed by owner",
    ADMIN: "job killed by root or LSF administrator",
    PREEMPT: "job killed after preemption",
    HOST_FAILED: "job killed by a signal external to LSF",
}
"""LSF's words for each way in which it ends jobs."""


@dataclass(frozen=True, slots=True, eq=False)
class Dispatched:
    """A run of a job has begun: where."""

    placement: Placement
    launch_host: str


@dataclass(slots=True)
class Job:
    """A job.

    Attributes:
        order: Its place among the jobs of its queue's priority.
        start: Start of its present or last run; None: it never ran.
        since: When its state became what it is now; its time in `spent` counts up to then.
        spent: State -> seconds that it has been in it, all runs together.
        ran_s: How long it has run since `start` before `since`, without suspensions.
        launch_host: Where its script runs; "" where there are no launch hosts.
        code: Its exit code, 128 + n for signal n; None: it has not ended.
        why: Why LSF has ended it, as TERM_RUNLIMIT; "" if it ended by itself.
        requeue: It is being ended to wait again.
        run: Counts its runs; the timers and processes of earlier ones are void.
        steps: How many signals of the sequence that ends it have been sent.
        told: LSF is ending it.
        gone_code: The exit code of a run that has ended and is not reported yet.
        pid: Pid of its first process, where it is a real one.
        holds: It has its slots; one that was suspended by a preemption has none.
        devices: The numbers of its GPUs, by the place of their host.
        said: Its events, with their times.
    """

    id: int
    request: Request
    submitted: float
    limit_s: float
    state: State = State.PEND
    order: int = 0
    start: float | None = None
    end: float | None = None
    since: float = 0.0
    spent: dict[State, float] = field(default_factory=dict)
    ran_s: float = 0.0
    placement: Placement | None = None
    launch_host: str = ""
    code: int | None = None
    why: str = ""
    requeue: bool = False
    run: int = 0
    steps: int = 0
    told: bool = False
    gone_code: int | None = None
    pid: int = 0
    holds: bool = False
    devices: dict[int, tuple[int, ...]] = field(default_factory=dict)
    said: list[tuple[float, str | Dispatched]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Return whether it is DONE or EXIT."""
        return self.state in ENDED

    @property
    def started(self) -> bool:
        """Return whether it has been dispatched and has not ended."""
        return self.state in STARTED

    @property
    def parallel(self) -> bool:
        """Return whether it has more than one slot."""
        return self.request.demand.slots > 1

    def change(self, state: State, now: float) -> None:
        """Enter a state."""
        passed = max(0.0, now - self.since)
        self.spent[self.state] = self.spent.get(self.state, 0.0) + passed
        if self.state is State.RUN:
            self.ran_s += passed
        self.state, self.since = state, now

    def ran(self, now: float) -> float:
        """Return how long its present or last run has lasted, without suspensions."""
        return self.ran_s + (max(0.0, now - self.since) if self.state is State.RUN else 0.0)

    def left_s(self, now: float) -> float:
        """Return how long it may still run, of its limit."""
        return max(0.0, self.limit_s - (self.ran(now) if self.started else 0.0))

    def in_states(self, now: float) -> dict[State, float]:
        """State -> how long it has been in it until now; ended ones take no time."""
        spent = dict(self.spent)
        if not self.ended:
            spent[self.state] = spent.get(self.state, 0.0) + max(0.0, now - self.since)
        return spent

    def wait_again(self, now: float, code: int) -> None:
        """A run is over, and the job waits with the same id."""
        self.change(State.PEND, now)
        self.said.append((now, f"Exited with exit code {code}; requeued"))
        self.placement, self.launch_host, self.pid, self.start = None, "", 0, None
        self.gone_code, self.told, self.why, self.requeue, self.steps = None, False, "", False, 0
        self.run += 1

    def expected_end(self, now: float) -> float | None:
        """Return when it reaches its run limit if it runs on; None: it has none."""
        return now + self.left_s(now) if self.limit_s else None
