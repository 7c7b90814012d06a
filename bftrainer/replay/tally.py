"""Counts events while a replay runs, and sums them up at its end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bftrainer.engine.state import State
from bftrainer.model.events import Event, Measured, NodesChanged, PlanDue, WorkersReady
from bftrainer.model.problem import Plan
from bftrainer.model.trainer import Trainer
from bftrainer.replay.trainers.simulated import SimulatedTrainer

ByClass = Mapping[str, float]
"""A number for each class of nodes."""


class Decision(NamedTuple):
    """One decision: when (virtual time, s), and for how long it assumed that no node leaves (s)."""

    time: float
    t_fwd_s: float


@dataclass(slots=True)
class Tally:
    """Counts of a running replay.

    Attributes:
        events: Changes of the pool, arrivals and ends of trainers.
        rescales: Changes of a trainer's size that were decided.
        preemptions: Times a trainer lost nodes because they left the pool.
        completed: Trainers that ended.
        class_s: Node-time in the pool, of each class of nodes.
        idle_node_s: Node-time in the pool that no trainer held.
        decisions: Every decision, in order.
        decision_s: How long each of them took (wall time).
        unproven: Decisions without a proof that they are the best.
        decided_by: Decisions by the allocator that made them.
        fallbacks: Decisions that the allocator that was asked for did not make, by why it did not.
        preempted: When trainers lost nodes, in order.
    """

    events: int = 0
    rescales: int = 0
    preemptions: int = 0
    completed: int = 0
    class_s: ByClass = field(default_factory=dict)
    idle_node_s: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    unproven: int = 0
    decided_by: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    preempted: list[float] = field(default_factory=list)
    _pool: ByClass = field(default_factory=dict)

    def passed(self, seconds: float, state: State) -> None:
        """Nothing changed for `seconds`."""
        self.class_s = plus(self.class_s, self._pool, seconds)
        self.idle_node_s += seconds * (len(state.pool) - state.held)

    def lost(self, event: NodesChanged, state: State) -> None:
        """Nodes are about to leave; `state` is the one before."""
        hit = sum(not event.left.isdisjoint(t.nodes) for t in state.active.values())
        self.preemptions += hit
        if hit:
            self.preempted.append(event.time)

    def decided(self, decision: Decision, plan: Plan, seconds: float) -> None:
        """A decision was made, in `seconds` of wall time."""
        self.decisions.append(decision)
        self.decision_s.append(seconds)
        self.unproven += not plan.proven
        self.decided_by[plan.allocator] += 1
        if plan.fallback:
            self.fallbacks[plan.fallback] += 1

    def stepped(self, event: Event, before: State, after: State) -> None:
        """An event led from one state to another. Ready workers and measurements change no size."""
        if isinstance(event, WorkersReady):
            return
        if before.pool is not after.pool:
            self._pool = by_class(after)
        self.events += not isinstance(event, Measured | PlanDue)
        for old, trainer in changed(before, after):
            self.rescales += _rescaled(old, trainer, event)

    @property
    def node_s(self) -> float:
        """Node-time in the pool."""
        return sum(self.class_s.values())

    @property
    def refuted(self) -> npt.NDArray[np.bool_]:
        """For each decision, whether a trainer lost nodes within T_fwd after it."""
        decided = np.array(self.decisions).reshape(-1, 2)
        losses = np.array([*self.preempted, math.inf])
        following = losses[np.searchsorted(losses, decided[:, 0], side="right")]
        return np.asarray(following <= decided.sum(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished replay of [begin, end): what was counted, and every simulated trainer by its number."""

    tally: Tally
    trainers: dict[int, SimulatedTrainer]
    begin: float
    end: float

    @property
    def samples(self) -> float:
        """Samples processed by all trainers."""
        return sum(trainer.samples for trainer in self.trainers.values())


def by_class(state: State) -> ByClass:
    """Number of nodes of each class in the pool."""
    if not state.settings.node_classes:
        return {"": len(state.pool)}
    return Counter(map(state.settings.class_of, state.pool))


def plus(one: ByClass, other: ByClass, times: float = 1.0) -> ByClass:
    """`one` + `times` * `other`, by class."""
    return {name: one.get(name, 0) + times * other.get(name, 0) for name in one.keys() | other.keys()}


def changed(before: State, after: State) -> Iterator[tuple[Trainer | None, Trainer]]:
    """The trainers that a step changed, of those that may hold nodes: as they were, as they are."""
    for id_, trainer in after.active.items():
        old = before.active.get(id_)
        if old is not trainer:
            yield old, trainer


def _rescaled(old: Trainer | None, trainer: Trainer, event: Event) -> bool:
    """True if the decision gave a trainer another number of nodes than the event left it."""
    left = event.left if isinstance(event, NodesChanged) else frozenset[str]()
    return len(trainer.nodes) != (len(old.nodes - left) if old is not None else 0)
