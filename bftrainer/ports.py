"""What the daemon needs from outside, as Protocols: everything real or fake stands behind these.

Each has a contract suite in `bftrainer.testing` that every implementation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bftrainer.model import Action, Ended, Event, Pilot, Plan, Snapshot, Trainer, TrainerSpec, TrainerStatus

Message = dict[str, Any]
"""One message between daemon, agent and worker: JSON with a "type"."""

MEASURE_S = 2.0
"""A speed on a number of nodes that has not been seen before is measured over so long."""
MEASURE_AGAIN_S = 10.0
"""And is measured again over so long."""


class SchedulerError(Exception):
    """The scheduler could not be asked or did not obey; the next poll tries again."""


class NoRoomError(SchedulerError):
    """A node takes no pilot now, which says nothing of other nodes."""


class UnsureError(SchedulerError):
    """The answer to an order was lost: it may be carried out nonetheless."""


class Clock(Protocol):
    """Where time comes from, in seconds since the Unix epoch."""

    def now(self) -> float: ...


class Scheduler(Protocol):
    """What a batch system shows and does. All methods may raise `SchedulerError`."""

    async def poll(self) -> Snapshot:
        """The machine as it is now."""
        ...

    async def pilots(self) -> tuple[Pilot, ...]:
        """Our pilots that the scheduler runs now, including those whose submission was never confirmed."""
        ...

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Start a pilot on a node: one that runs the agent with this tag and secret, for at most so long.

        May be refused later. Raises `UnsureError` where it may run though no answer came.
        """
        ...

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """End pilots and everything in them; no error for those that are gone already."""
        ...

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Why pilots that are gone have failed, in words for an admin. Not there are those that have not, and
        those of which nobody knows."""
        ...

    async def close(self) -> None:
        """Stop what the scheduler object itself runs; pilots are left alone."""
        ...


class Link(Protocol):
    """The agents that are connected right now."""

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        """Whether a node has an agent that may run this trainer's program: one of its user's."""
        ...

    def send(self, node: str, message: Message) -> None:
        """Send without waiting. To a node without an agent: nothing, its loss is reported elsewhere."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What rank 0 of a trainer last said of it; `samples` and `step` are committed by all members."""

    time: float
    trainer: int
    generation: int
    size: int
    step: int
    samples: int
    epoch: int
    rate: float | None
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One member's pause in one rescale: from its last step before to the first it could take after.

    `lost_steps` counts the steps that had been reported and were not in the state that went on.
    """

    time: float
    trainer: int
    generation: int
    node: str
    kind: str  # join, leave, loss or restart
    size: int
    step: int
    pause_s: float
    lost_steps: int


class Books(Protocol):
    """Where launchers write down what is not the engine's business."""

    def progressed(self, progress: Progress) -> None: ...

    def pause(self, pause: Pause) -> None: ...


class Launcher(Protocol):
    """How a trainer's workers start and change. Never blocks.

    What happens is reported as events to the `emit` that the launcher was made with: `WorkersReady`,
    `WorkerLost`, `TrainerEnded`, `Measured`, `Resync`.
    """

    def perform(self, action: Action) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrainer:
    """A trainer as the books have it; `engine` is what the engine goes on with after a restart."""

    id: int
    spec: TrainerSpec
    status: TrainerStatus
    reason: str
    submitted_at: float
    ended_at: float | None
    samples: int
    step: int
    epoch: int
    rate: float | None
    metrics: Mapping[str, float]
    engine: Trainer


Row = dict[str, Any]
"""A row for display, ready for JSON."""


class Store(Protocol):
    """The books. Every method is one transaction; errors are `StoreError`s."""

    def submit(self, spec: TrainerSpec, time: float) -> int:
        """Store a new trainer and return its id.

        Raises `NameTakenError` for the name of an unfinished one of the same user.
        """
        ...

    def record(
        self,
        event: Event,
        trainers: Sequence[Trainer],
        plan: Plan | None,
        actions: Sequence[Action],
        ended: Ended | None,
        pool: frozenset[str],
    ) -> list[int]:
        """Write-ahead: an event, what was decided and the trainers after it. Returns the actions' ids."""
        ...

    def performed(self, actions: Sequence[int], time: float) -> None:
        """The actions have been carried out."""
        ...

    def progress(self, rows: Sequence[Progress]) -> None: ...

    def pause(self, pause: Pause) -> None: ...

    def trainers(self) -> list[StoredTrainer]:
        """All trainers in order of arrival."""
        ...

    def rows(
        self, what: str, limit: int | None, trainer: int | None = None, user: str | None = None
    ) -> list[Row]:
        """The last `limit` rows (None: all) of "events", "pauses" or "reports", oldest first.

        `trainer`: only this one's. `user`: nothing of trainers of others, in plans and actions either.
        """
        ...

    def get(self, key: str) -> str | None:
        """A remembered value."""
        ...

    def put(self, key: str, value: str) -> None: ...

    def close(self) -> None: ...


Emit = Callable[[Event], None]
