"""The allocation problem, and the plan that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Points, RescaleCosts

Allocation = Mapping[int, frozenset[str]]
"""Trainer id -> the nodes that it has. Nodes of different trainers are disjoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One trainer as the allocators see it.

    `curve` is the objective metric O_j in its own unit (samples/s for throughput). `current` is C_j: how many
    nodes of the pool the trainer holds. The weight multiplies its whole value. `held` says how many of its
    nodes are in each of the problem's groups (empty: the problem has none). `curves` has the metric on node
    classes where it differs; an empty curve means that the trainer cannot use the class. It may get those
    of its `sizes` that are from `n_min` to `n_max`.
    """

    trainer: int
    n_min: int
    n_max: int
    current: int
    curve: Points
    weight: float = 1.0
    costs: RescaleCosts = field(default_factory=RescaleCosts)
    held: tuple[int, ...] = ()
    curves: tuple[tuple[str, Points], ...] = ()
    sizes: AllowedSizes = EVERY_SIZE
    across: Points = ()
    alone: int = 0

    @property
    def trains(self) -> bool:
        """True if it can train on the nodes that it holds: otherwise it waits for more, or goes down."""
        return self.current >= self.n_min and self.sizes.floor(self.current) == self.current

    def fitting(self, nodes: int) -> int:
        """The largest size that it may get, at most `nodes`; 0 if there is none."""
        return self.sizes.fitting(nodes, self.n_min, self.n_max)

    def allows(self, nodes: int) -> bool:
        """True if it may get exactly `nodes` nodes."""
        return nodes == self.fitting(nodes)

    def above(self, nodes: int) -> int:
        """The smallest size that it may get above `nodes`; 0 if there is none."""
        found = self.sizes.above(max(nodes, self.n_min - 1))
        return found if found <= self.n_max else 0

    def curve_on(self, node_class: str) -> Points:
        """The objective metric on nodes of a class."""
        return next((points for name, points in self.curves if name == node_class), self.curve)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A side constraint: these trainers may hold at most `n_max` nodes together."""

    trainers: frozenset[int]
    n_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of the pool that are alike to the allocators, and that leave together if they leave.

    No value is counted past `remaining_s`. `departures` (0 to 1) is how probable it is that the group leaves
    within T_fwd: a trainer that uses any of its nodes is charged that many scale-downs, once.
    """

    size: int
    node_class: str = ""
    remaining_s: float = float("inf")
    departures: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The problem of sharing out `pool_size` nodes to `candidates`.

    Candidates are in first-come-first-served order. `groups` divides the pool where its nodes differ; it is
    empty if all nodes are alike. A trainer uses nodes of one class only.
    """

    pool_size: int
    t_fwd_s: float
    candidates: tuple[Candidate, ...]
    caps: tuple[Cap, ...] = ()
    groups: tuple[NodeGroup, ...] = ()

    @property
    def parts(self) -> tuple[NodeGroup, ...]:
        """The groups; a single one of all nodes if they are alike."""
        return self.groups or (NodeGroup(size=self.pool_size),)

    def held(self, candidate: Candidate) -> tuple[int, ...]:
        """Number of nodes of each part that a candidate holds."""
        if not self.groups:
            return (candidate.current,)
        return candidate.held or (0,) * len(self.groups)


class PlanStatus(StrEnum):
    """Origin of a plan. Only OPTIMAL is proven to be the best."""

    OPTIMAL = "optimal"  # proven, within the plan's gap
    FEASIBLE = "feasible"  # not proven: the MILP's time limit struck, or the relaxation left a gap
    FALLBACK = "fallback"  # the time limit struck, and the current map was kept (section 3.6)
    HEURISTIC = "heuristic"  # from a rule that does not maximise the objective (equal shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An allocator's answer.

    `allocator` names the method that decided. `fallback` says why the method that the settings ask for did
    not decide; it is empty if that method decided. `bound` is the best objective that any plan could reach,
    as far as is known. `spread` gives a trainer's nodes per group of the problem, if the problem has groups.
    """

    allocator: str
    status: PlanStatus
    counts: Mapping[int, int]
    objective: float
    bound: float
    note: str = ""
    fallback: str = ""
    spread: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    allocation: Allocation = field(default_factory=dict)
    solve_s: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance between objective and bound; 0 where optimality is proven exactly."""
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-9)

    @property
    def proven(self) -> bool:
        """True if no other plan is better, within the gap that was asked for."""
        return self.status is PlanStatus.OPTIMAL
