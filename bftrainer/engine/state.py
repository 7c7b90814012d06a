"""What the engine knows, and what one event leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bftrainer.engine.queue import Backlog
from bftrainer.engine.survival import Survival
from bftrainer.model.actions import Action, Ended
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import Trainer
from bftrainer.performance.estimate import Estimates, SharedObservations

Solve = Callable[[Problem], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that decisions depend on: the pool and the unfinished trainers in order of arrival.

    `active` are those that may hold nodes: the first `max_parallel` (section 5.3), or, without that
    limit, those that have been given nodes once. The others are `waiting`; an event costs next to nothing
    for them, however many there are. `since` and `facts` say when nodes joined and what is known of
    them, `survival` how long nodes have stayed so far. `programs` are what trainers have shown of their
    programs, `estimates` what the last plan took those trainers to be like that are learnt from.
    """

    settings: EngineSettings
    pool: frozenset[str] = frozenset()
    active: Mapping[int, Trainer] = field(default_factory=dict)
    waiting: Backlog = field(default_factory=Backlog)
    draining: bool = False
    since: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, NodeInfo] = field(default_factory=dict)
    survival: Survival = field(default_factory=Survival)
    programs: SharedObservations = field(default_factory=dict)
    estimates: Mapping[int, Estimates] = field(default_factory=dict)

    @property
    def trainers(self) -> dict[int, Trainer]:
        """All unfinished trainers by id. Builds the whole mapping at each access: see `trainer` for one."""
        return {**self.active, **{t.id: t for t in self.waiting}}

    def trainer(self, id_: int) -> Trainer | None:
        """One unfinished trainer, None if there is none of this id."""
        return self.active.get(id_) or self.waiting.get(id_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one event led to. `plan` is None where nothing had to be decided."""

    state: State
    actions: tuple[Action, ...] = ()
    plan: Plan | None = None
    ended: Ended | None = None


@dataclass(slots=True, kw_only=True)
class Draft:
    """The state with an event's facts in it, before anything is decided. Local to one step."""

    pool: frozenset[str]
    active: dict[int, Trainer]
    waiting: Backlog
    draining: bool
    since: Mapping[str, float]
    facts: Mapping[str, NodeInfo]
    survival: Survival
    programs: SharedObservations
    estimates: Mapping[int, Estimates]
    vacated: frozenset[str] = frozenset()  # not in the pool any more, but their agents still listen
    decide: bool = False
    regroup: frozenset[int] = frozenset()  # trainers whose membership must be published anew
    restart: tuple[tuple[int, str], ...] = ()  # workers to start again
    ended: Ended | None = None
