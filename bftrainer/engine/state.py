"""The engine's state, and the result of one event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.engine.gpus.too_few import NodeGpus
from bftrainer.engine.queueing.fair_shares import Ledger, Portion
from bftrainer.engine.queueing.queue import TrainerQueue
from bftrainer.engine.survival import Survival
from bftrainer.model.actions import Action, Ended
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import Trainer
from bftrainer.performance.estimate import Estimates, SharedObservations

Solve = Callable[[Problem], Plan]
"""Answers an allocation problem, see `allocate.decide`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that decisions depend on.

    Attributes:
        settings: The site's settings for decisions.
        pool: The nodes that trainers may use now.
        active: The trainers that may hold nodes: the first `max_parallel` (section 5.3), or, without that
            limit, those that have been given nodes once.
        waiting: The other unfinished trainers. An event costs next to nothing for them, however many wait.
        displaced: Those of the active trainers that have no place, see `places`: they get no nodes.
        draining: Whether trainers get no nodes until `Resume`.
        since: When each node of the pool joined it (s).
        node_info: What is known of the nodes of the pool; empty if nothing distinguishes them.
        machine: How many nodes of each class ("": of none) there are, idle or not; None: not known.
        gpus: How many GPUs nodes have, as far as that is known.
        barred: The users that get no pilots for a while, with the reason: their trainers get no more nodes.
        kept_off: The nodes on which users get no pilots for a while, by user: their trainers get others.
        survival: Times that nodes have stayed so far.
        ledger: What users held beside their shares, where the site shares the pool by weights.
        programs: Measurements of all trainers of a program, by program.
        estimates: The last plan's assumptions on trainers that the engine learns about.
    """

    settings: EngineSettings
    pool: frozenset[str] = frozenset()
    active: Mapping[int, Trainer] = field(default_factory=dict)
    waiting: TrainerQueue = field(default_factory=TrainerQueue)
    displaced: frozenset[int] = frozenset()
    draining: bool = False
    since: Mapping[str, float] = field(default_factory=dict)
    node_info: Mapping[str, NodeInfo] = field(default_factory=dict)
    machine: Mapping[str, int] | None = None
    gpus: NodeGpus = field(default_factory=NodeGpus)
    barred: Mapping[str, str] = field(default_factory=dict)
    kept_off: Mapping[str, frozenset[str]] = field(default_factory=dict)
    survival: Survival = field(default_factory=Survival)
    ledger: Ledger = field(default_factory=Ledger)
    programs: SharedObservations = field(default_factory=dict)
    estimates: Mapping[int, Estimates] = field(default_factory=dict)

    @property
    def trainers(self) -> dict[int, Trainer]:
        """All unfinished trainers by id. Builds the whole mapping at each access: see `trainer` for one."""
        return {**self.active, **{t.id: t for t in self.waiting}}

    @property
    def portion(self) -> Portion:
        """In what the pool is shared out among users."""
        return Portion.of(self.settings, self.pool)

    @property
    def held(self) -> int:
        """The nodes of the pool that trainers hold."""
        return len(frozenset[str]().union(*(t.nodes for t in self.active.values())))

    def set_aside(self, trainer: Trainer) -> bool:
        """Return whether a trainer gets no nodes for now: its user is barred, and it does not run."""
        return trainer.spec.user in self.barred and not trainer.members

    def trainer(self, id_: int) -> Trainer | None:
        """One unfinished trainer, None if there is none of this id."""
        return self.active.get(id_) or self.waiting.get(id_)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one event. `plan` is None if the event needed no decision."""

    state: State
    actions: tuple[Action, ...] = ()
    plan: Plan | None = None
    ended: Ended | None = None


@dataclass(slots=True, kw_only=True)
class Draft:
    """The state on its way through one step: an event changes it, then the decision. Local to the step.

    Attributes:
        state: What is known with the event; trainers still have the nodes that the event leaves them.
        vacated: Nodes that left the pool because we give them up: their agents still listen.
        decide: Whether nodes must be allocated again.
        regroup: Trainers whose membership must be published again.
        restart: Workers that are lost, as (trainer, node): to start again, where the trainer keeps the node.
        ended: The trainer that the event ended.
    """

    state: State
    vacated: frozenset[str] = frozenset()
    decide: bool = False
    regroup: frozenset[int] = frozenset()
    restart: tuple[tuple[int, str], ...] = ()
    ended: Ended | None = None

    def put(self, trainer: Trainer) -> None:
        """Take in a trainer that may hold nodes, in place of what was known of it."""
        self.state = replace(self.state, active={**self.state.active, trainer.id: trainer})
