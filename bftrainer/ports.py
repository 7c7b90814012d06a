"""The daemon's needs from outside, as Protocols: real and simulated parts implement the same ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted, MainStart
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Message, Pause, Progress, Row, StoredTrainer, TrainerSummary
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus


class Clock(Protocol):
    """Source of time, in seconds since the Unix epoch. It never jumps: time-outs are counted on it."""

    def now(self) -> float:
        """The present time."""
        ...

    def behind_s(self) -> float:
        """Return the lead of the machine's clock over this one (s): not 0 only for a while after that was
        set. Times that others tell, such as a batch system, are on the machine's."""
        ...


class Scheduler(Protocol):
    """The view of a batch system, and its operations. All methods may raise `SchedulerError`."""

    async def poll(self) -> Snapshot:
        """The machine as it is now."""
        ...

    async def pilots(self) -> tuple[Pilot, ...]:
        """Our pilots that the scheduler runs now, including those whose submission was never confirmed."""
        ...

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Start a pilot on a node: it runs the agent with this tag and secret, for `limit_s` at most.

        The scheduler may still refuse the pilot later. Raises `UnsureError` if no answer came: then the pilot
        may run.
        """
        ...

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """End pilots and all their processes. Idempotent: a pilot that is gone already is no error."""
        ...

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Return why pilots that are gone have failed, in words for an admin. Pilots that did not fail, or of
        which the scheduler knows nothing, are left out."""
        ...

    async def preempted(self, pilots: Sequence[Pilot]) -> Collection[Pilot]:
        """Those of these pilots that the scheduler itself has told to end, for the sake of main jobs. Their
        users cannot make it say so. Those of which it knows nothing are left out."""
        ...

    async def accounted(self, since: float) -> Accounted:
        """Return what the accounting says of main jobs that started at `since` or later. It may take long."""
        ...

    async def close(self) -> None:
        """Stop what the scheduler object itself runs; pilots go on."""
        ...


class Link(Protocol):
    """The agents that are connected right now."""

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        """Return whether a node has an agent of the trainer's user, which may run the trainer's program."""
        ...

    def devices(self, node: str) -> int:
        """Return the number of usable devices (GPUs) of a node's pilot; 0 where it has none or no agent."""
        ...

    def send(self, node: str, message: Message) -> None:
        """Send a message without waiting. Nothing happens if the node has no agent: its loss is reported as
        an event of its own."""
        ...


class Journal(Protocol):
    """Takes the launchers' notes, which the engine does not need."""

    def progressed(self, progress: Progress) -> None:
        """Keep a trainer's latest report, and store it soon."""
        ...

    def pause(self, pause: Pause) -> None:
        """Store how long a member stood still in a rescale."""
        ...


class Workers(Protocol):
    """The facts about workers that giving their node back needs."""

    def busy(self, node: str) -> bool:
        """Return whether a worker may be running on a node that still has something to do."""
        ...

    def agent_down(self, node: str, *, blame: bool = False, waiting: bool = True) -> None:
        """A node is gone with everything on it. Idempotent. With `blame`, workers there count as failed: they
        can kill their pilot, which runs as the same user, and pilots have died there again and again. Without
        `waiting` only its pilot is gone: workers that wait for the next one there go on waiting."""
        ...


class WorkerState(Protocol):
    """One worker as its agent last described it."""

    @property
    def generation(self) -> int:
        """The generation that started it."""
        ...

    @property
    def phase(self) -> str:
        """Phase of its life: starting, ready, member, finished or leaving."""
        ...

    @property
    def joined(self) -> int:
        """The latest generation whose membership it has joined, 0 before the first."""
        ...


class Executor(Protocol):
    """Carries out the decisions of the engine, for real or simulated. Never blocks.

    It reports what happens as events to the `emit` that it was made with: `WorkersReady`, `WorkerLost`,
    `TrainerEnded`, `Measured`, `Resync`, `Lasted`.
    """

    def add(self, trainer: int, spec: TrainerSpec) -> None:
        """Make a trainer known before any action names it."""
        ...

    def forget(self, trainer: int) -> None:
        """Forget a trainer that the engine has ended, as soon as its last worker has gone."""
        ...

    def perform(self, actions: Sequence[Action]) -> None:
        """Carry out the actions of one decision, in their order."""
        ...


class Launcher(Executor, Workers, Protocol):
    """Starts and changes a trainer's workers: all that the daemon calls. `launch.launchers.Launchers`
    implements it. Replays have no agents: their launcher implements `Executor` alone.
    """

    def add(
        self,
        trainer: int,
        spec: TrainerSpec,
        *,
        published: int = 0,
        members: tuple[str, ...] = (),
        step: int = 0,
        samples: int = 0,
    ) -> None:
        """Make a trainer known before any action names it; after a restart, with what the store has of it."""
        ...

    def workers(self, trainer: int) -> dict[str, str]:
        """Node -> phase of the trainer's workers that may still be there; empty if it is not known."""
        ...

    def note(self, trainer: int) -> str:
        """Return what a trainer's user should know of its start, with what to do; empty if nothing."""
        ...

    def views(self, trainer: int) -> Mapping[str, WorkerState]:
        """Node -> worker of a known trainer, as far as agents have reported."""
        ...

    def any_workers(self) -> bool:
        """Return whether any trainer's worker may still be there."""
        ...

    def log_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        """Return the folder of a trainer's output, one file per node."""
        ...

    def checkpoint_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        """Return the folder of a trainer's checkpoints."""
        ...

    def agent_up(self, node: str, inventory: list[Message], wanted: Collection[int]) -> None:
        """An agent has connected and listed its workers; only those of `wanted` trainers may go on."""
        ...

    def said(self, node: str, message: Message) -> None:
        """An agent has sent a message, of its own or of a worker."""
        ...

    def close(self) -> None:
        """The daemon stops, and so does what the launcher itself runs."""
        ...


class StudyStore(Protocol):
    """The studies and trials that the daemon keeps on disk. Every method is one transaction; errors are
    `StoreError`s."""

    def keep(self, study: StoredStudy, trials: Sequence[StoredTrial]) -> None:
        """Store a study, and some of its trials, as they are now. Idempotent."""
        ...

    def last_id(self) -> int:
        """The highest id of a study; 0: there is none."""
        ...

    def unfinished(self) -> list[StoredStudy]:
        """The studies that have not ended."""
        ...

    def ended(self, limit: int, user: str | None = None) -> list[StoredStudy]:
        """The studies that ended last, of one user or of all (None); the latest end comes first."""
        ...

    def find(self, name: str, user: str | None = None) -> StoredStudy | None:
        """The study with this number, or the latest with this name, of one user or of all (None)."""
        ...

    def trials(self, study: int) -> list[StoredTrial]:
        """The trials of a study, by number."""
        ...


class Store(Protocol):
    """The daemon's data on disk. Every method is one transaction; errors are `StoreError`s.

    Methods that write raise `UnstorableError` where trying again is of no use. One thread writes; several may
    read.
    """

    @property
    def studies(self) -> StudyStore:
        """The studies; they have methods of their own."""
        ...

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
        """Note that the actions with these ids have been carried out."""
        ...

    def catch_up(self, trainers: Sequence[Trainer], ended: Sequence[tuple[Ended, float]]) -> None:
        """Store what decisions led to, without their events: trainers as they are now, and ends with their
        times."""
        ...

    def progress(self, reports: Sequence[Progress], rows: Collection[int] | None = None) -> None:
        """Store reports: each trainer keeps its last one.

        Those of the trainers in `rows` (None: of all) are also kept, as rows of "reports".
        """
        ...

    def pause(self, *pauses: Pause) -> None:
        """Store members' pauses in rescales."""
        ...

    def main_started(self, starts: Sequence[MainStart], most: int) -> None:
        """Store the starts of main jobs; of all that are stored, the last `most` are kept."""
        ...

    def main_starts(self, since: float, limit: int) -> list[MainStart]:
        """The starts of main jobs at `since` or later, oldest first, of the last `limit` that were stored;
        without the nodes that they were on."""
        ...

    def trainers(self) -> list[StoredTrainer]:
        """All trainers in order of arrival. Reads the whole table: for replays, not for queries."""
        ...

    def unfinished(self, damaged: Callable[[int, str], None] | None = None) -> list[StoredTrainer]:
        """The trainers that have not ended, in order of arrival.

        `damaged` gets the id of each unreadable one, and the reason; without it that is a `StoreError`.
        """
        ...

    def trainer(self, id_: int) -> StoredTrainer | None:
        """The trainer with this id, None if there is none."""
        ...

    def latest_named(self, name: str) -> Mapping[str, int]:
        """The id of each user's latest trainer of this name."""
        ...

    def unfinished_summaries(self, user: str | None = None) -> list[TrainerSummary]:
        """The trainers that have not ended, of one user or of all (None), in order of arrival."""
        ...

    def ended_summaries(self, limit: int, skip: int = 0, user: str | None = None) -> list[TrainerSummary]:
        """The trainers that ended last, of one user or of all (None); the latest end comes first.

        Returns at most `limit` after those `skip` that ended later.
        """
        ...

    def count_ended(self, user: str | None = None) -> Mapping[TrainerStatus, int]:
        """Count the ended trainers by status, of one user or of all (None)."""
        ...

    def count_ended_by_user(self) -> Mapping[str, Mapping[TrainerStatus, int]]:
        """User -> how many of the user's trainers ended with which status."""
        ...

    def rows(
        self,
        what: str,
        limit: int | None,
        trainer: int | None = None,
        user: str | None = None,
        before: int | None = None,
    ) -> list[Row]:
        """The last `limit` rows (None: all) of "events", "pauses" or "reports", oldest first.

        `trainer`: only this one's. `user`: nothing of trainers of others, in plans and actions either.
        `before`: only rows that are older than the one with this id.
        """
        ...

    def prune(self, before: float, limit: int) -> int:
        """Delete the oldest events of times earlier than `before`, each with its plan and actions, and the
        oldest reports, pauses and starts of main jobs: at most `limit` of each. Returns how many; 0: nothing
        so old is left.

        Trainers stay, and so do the events that are left, whole.
        """
        ...

    def trim(self, max_bytes: int, limit: int) -> tuple[str, int] | None:
        """If the store holds more than `max_bytes`, delete about `limit` of the oldest rows of the kind that
        takes the most: "events" with plans and actions, "main_starts", or "reports", "pauses", "trainers"
        or "studies" that have ended, of the user who has the most of these; of studies one, with its trials.

        Returns the kind, and how many were deleted; None: nothing was.
        """
        ...

    def tidy(self) -> None:
        """Bring what is written where it belongs, if much has gathered: to be called when there is time."""
        ...

    def get(self, key: str) -> str | None:
        """The value that was `put` last for `key`; None: none was."""
        ...

    def put(self, key: str, value: str) -> None:
        """Store a value for `key`, in place of the one before."""
        ...

    def interrupt(self) -> None:
        """End what is read or deleted, and read nothing any more: the daemon ends. Writing goes on."""
        ...

    def close(self) -> None:
        """Let go of the database; no other method may be called afterwards."""
        ...


Emit = Callable[[Event], None]
"""Reports an event to the engine; one whose time lies in the future is taken when it is due."""
