"""What the daemon needs from outside, as Protocols: everything real or fake stands behind these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Message, Pause, Progress, Row, StoredTrainer
from bftrainer.model.trainer import Trainer, TrainerSpec


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


class Journal(Protocol):
    """Where launchers write down what is not the engine's business."""

    def progressed(self, progress: Progress) -> None: ...

    def pause(self, pause: Pause) -> None: ...


class Launcher(Protocol):
    """How a trainer's workers start and change. Never blocks.

    What happens is reported as events to the `emit` that the launcher was made with: `WorkersReady`,
    `WorkerLost`, `TrainerEnded`, `Measured`, `Resync`.
    """

    def perform(self, action: Action) -> None: ...


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
