"""The writes to the store, as they wait for it: each is one transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from bftrainer.errors import StoreError
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event
from bftrainer.model.main_jobs import MainStart
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.ports import Store

TRIAL = "trial"
"""The store's key for a value that is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """One event and what the engine decided on it; `trainers` are those that it changed."""

    event: Event
    trainers: Sequence[Trainer]
    plan: Plan | None
    actions: Sequence[Action]
    ended: Ended | None
    pool: frozenset[str]


@dataclass(slots=True, eq=False, kw_only=True)
class Write(ABC):
    """Something to be stored. `since` is when it was queued (s, monotonic).

    `ahead`: a user waits for it, and nothing that waits has to be stored before it.
    """

    since: float
    ahead: bool = False

    @abstractmethod
    def carry_out(self, store: Store) -> None:
        """Store it.

        Raises:
            UnstorableError: the store will never take it as it is.
            StoreError: the store does not take it now.
        """

    def smaller(self) -> Sequence[Write]:
        """Return what to store instead if the store never takes this; empty: it is dropped."""
        return ()

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(slots=True, eq=False, kw_only=True)
class DecisionWrite(Write):
    """A decision. `stored` is done when the store has it; `actions` are the ids of its actions then."""

    decision: StoredDecision
    stored: Future[None] = field(default_factory=Future)
    actions: Sequence[int] = ()
    follows: bool = False  # whether the reports that go before a trainer's end have gone

    def carry_out(self, store: Store) -> None:
        own = self.decision
        self.actions = store.record(own.event, own.trainers, own.plan, own.actions, own.ended, own.pool)
        self.stored.set_result(None)

    def smaller(self) -> Sequence[Write]:
        states = StatesWrite(since=self.since)
        states.add(self.decision)
        return [states]

    def __str__(self) -> str:
        return f"the event {type(self.decision.event).__name__}"


@dataclass(slots=True, eq=False, kw_only=True)
class PerformedWrite(Write):
    """The actions of a decision have been carried out, at `time` (s since the Unix epoch)."""

    of: DecisionWrite
    time: float

    def carry_out(self, store: Store) -> None:
        store.performed(self.of.actions, self.time)


@dataclass(slots=True, eq=False, kw_only=True)
class StatesWrite(Write):
    """Results of decisions, without their events: the trainers' latest states, and ends with times."""

    trainers: dict[int, Trainer] = field(default_factory=dict)
    ended: dict[int, tuple[Ended, float]] = field(default_factory=dict)

    def add(self, decision: StoredDecision) -> None:
        """Take in what a later decision led to."""
        self.trainers |= {t.id: t for t in decision.trainers}
        if decision.ended is not None:
            self.end(decision.ended, decision.event.time)

    def end(self, ended: Ended, time: float) -> None:
        """Take in a trainer's end."""
        self.trainers.pop(ended.trainer, None)
        self.ended[ended.trainer] = (ended, time)

    def take_in(self, later: StatesWrite) -> None:
        """Take in what later decisions led to."""
        self.trainers |= later.trainers
        for ended, time in later.ended.values():
            self.end(ended, time)

    def carry_out(self, store: Store) -> None:
        store.catch_up(list(self.trainers.values()), list(self.ended.values()))

    def smaller(self) -> Sequence[Write]:
        if len(self.trainers) + len(self.ended) == 1:
            return ()
        own = [StatesWrite(since=self.since, trainers={id_: t}) for id_, t in self.trainers.items()]
        return own + [StatesWrite(since=self.since, ended={id_: e}) for id_, e in self.ended.items()]

    def __str__(self) -> str:
        return f"the state of trainer {', '.join(map(str, [*self.trainers, *self.ended]))}"


@dataclass(slots=True, eq=False, kw_only=True)
class SubmissionWrite(Write):
    """A new trainer. `answer` is its id, or why the store will never take it.

    `withdrawn`: its user has been told that nothing was submitted. Then it stores next to nothing, but tells
    as well as any write whether the store works.
    """

    spec: TrainerSpec
    time: float
    answer: Future[int | StoreError] = field(default_factory=Future)
    withdrawn: bool = False
    id: int | None = None

    def carry_out(self, store: Store) -> None:
        if self.withdrawn:
            store.put(TRIAL, "")
        else:
            self.id = store.submit(self.spec, self.time)

    def __str__(self) -> str:
        return f"the trainer {self.spec.name!r} of {self.spec.user or 'this user'}"


@dataclass(slots=True, eq=False, kw_only=True)
class ValueWrite(Write):
    """A value under a key."""

    key: str
    value: str

    def carry_out(self, store: Store) -> None:
        store.put(self.key, self.value)

    def __str__(self) -> str:
        return f"the value of {self.key!r}"


@dataclass(slots=True, eq=False, kw_only=True)
class StudyWrite(Write):
    """A study, and those of its trials that have changed. `stored` is done when the store has them."""

    study: StoredStudy
    trials: Sequence[StoredTrial]
    stored: Future[None] = field(default_factory=Future)

    def carry_out(self, store: Store) -> None:
        store.studies.keep(self.study, self.trials)
        self.stored.set_result(None)

    def continues(self, other: Write) -> bool:
        """Return whether the other one is of the same study."""
        return isinstance(other, StudyWrite) and other.study.id == self.study.id

    def __str__(self) -> str:
        return (
            f"{len(self.trials)} trials of the study {self.study.name!r} of {self.study.user or 'this user'}"
        )


@dataclass(slots=True, eq=False, kw_only=True)
class PausesWrite(Write):
    """Pauses of members."""

    pauses: Sequence[Pause]

    def carry_out(self, store: Store) -> None:
        store.pause(*self.pauses)

    def smaller(self) -> Sequence[Write]:
        alone = len(self.pauses) == 1
        return () if alone else [PausesWrite(since=self.since, pauses=(own,)) for own in self.pauses]

    def __str__(self) -> str:
        return f"pauses of trainer {', '.join(sorted({str(own.trainer) for own in self.pauses}))}"


@dataclass(slots=True, eq=False, kw_only=True)
class MainStartsWrite(Write):
    """Starts of main jobs; the store keeps the last `most`."""

    starts: Sequence[MainStart]
    most: int

    def carry_out(self, store: Store) -> None:
        store.main_started(self.starts, self.most)

    def smaller(self) -> Sequence[Write]:
        alone = len(self.starts) == 1
        return () if alone else [replace(self, starts=(own,)) for own in self.starts]

    def __str__(self) -> str:
        return f"the starts of {len(self.starts)} main jobs"


@dataclass(slots=True, eq=False, kw_only=True)
class ReportsWrite(Write):
    """The latest reports of trainers; `rows` are the trainers whose report is also kept as a row."""

    reports: Sequence[Progress]
    rows: frozenset[int]

    def carry_out(self, store: Store) -> None:
        store.progress(self.reports, self.rows)

    def smaller(self) -> Sequence[Write]:
        if len(self.reports) == 1:
            return ()
        return [ReportsWrite(since=self.since, reports=(own,), rows=self.rows) for own in self.reports]

    def __str__(self) -> str:
        return f"reports of trainer {', '.join(str(own.trainer) for own in self.reports)}"
