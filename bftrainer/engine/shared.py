"""A plan where GPUs are shared out (`share: gpu`): counts, and the GPUs of each trainer. Pure.

The allocators count with GPUs as they do with nodes, and take it for granted that a trainer that fits on one
node gets its GPUs there. `allocate.place` gives out GPUs for their counts. Where trainers come out
with fewer, or on several nodes though one could have held them, counts are planned again that take this for
granted; of all plans the one is taken whose placement is worth most. The counts that the allocators found
first bound them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bftrainer.allocate import relax, value
from bftrainer.allocate.place import NONE, Rules, Want, by_node, nodes_of, place
from bftrainer.engine.node_info import NodeGroups
from bftrainer.engine.polish import Found, Move, polished
from bftrainer.engine.state import Solve, State
from bftrainer.model.policy import EngineSettings, ShareNodes
from bftrainer.model.problem import Allocation, Candidate, Plan, PlanStatus, Problem
from bftrainer.model.trainer import Trainer
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats

ROUNDS = 4
"""So often counts are planned at most."""
NEAR = 5e-3
"""Counts are not planned again for a placement that is below the bound by this share at most."""
TRIES = 8000
"""So many GPUs are given out at most to find better placements, pool by pool."""
FEWEST = 8
"""Fewer tries than this find next to nothing."""


def rules_of(settings: EngineSettings) -> Rules:
    """Who may share a node, as the settings say."""
    return Rules(
        avoid_interference=settings.avoid_interference,
        users_share=settings.share_nodes is ShareNodes.USERS,
    )


def planned(
    state: State, trainers: Sequence[Trainer], question: Problem, groups: NodeGroups, solve: Solve
) -> tuple[Plan, Allocation]:
    """The plan for a problem over GPUs, and the GPUs of each trainer."""
    most: dict[int, int] = {}
    price = Price.of(question, groups)
    first = plan = solve(question)
    best = found = Found(float("-inf"))
    for _ in range(ROUNDS):
        target = trimmed(trainers, assigned(state, trainers, plan, groups), state)
        found = Found(price.total(target), target)
        best = max(best, found, key=lambda one: one.worth)
        less = price.less(plan, target)
        if _near(best, first.bound, NEAR) or all(most.get(t, n + 1) <= n for t, n in less.items()):
            break
        most |= less
        plan = solve(bounded(question, most))
    tries = TRIES // max(1, len(state.pool))
    if not groups and tries >= FEWEST and not _near(best, first.bound, state.settings.milp_gap):

        def attempt(move: Move) -> Found:
            if any(sum(move.counts.get(t, 0) for t in cap.trainers) > cap.n_max for cap in question.caps):
                return Found(float("-inf"))
            wants = _wants(state, trainers, move.counts, state.pool, move.left)
            wants.sort(key=lambda want: want.trainer != move.first)
            there = trimmed(trainers, place(wants, state.pool, rules_of(state.settings)), state)
            return Found(price.total(there), there)

        best = polished(question.candidates, best, len(state.pool), tries, attempt)
    return _told(first, best, state.settings.milp_gap), best.target


def _near(found: Found, bound: float, gap: float) -> bool:
    return bound - found.worth <= max(gap, relax.EXACT) * max(1.0, abs(bound))


def bounded(question: Problem, most: Mapping[int, int]) -> Problem:
    """The problem in which these trainers get so many nodes or GPUs at most."""
    found = (replace(c, n_max=min(c.n_max, most.get(c.trainer, c.n_max))) for c in question.candidates)
    return replace(question, candidates=tuple(c for c in found if c.n_min <= c.n_max))


def assigned(state: State, trainers: Sequence[Trainer], plan: Plan, groups: NodeGroups) -> Allocation:
    """The GPUs for the plan's counts, per group where the pool has groups. Nobody migrates."""
    rules = rules_of(state.settings)
    if not groups:
        return place(_wants(state, trainers, plan.counts, state.pool), state.pool, rules)
    target: dict[int, frozenset[str]] = {}
    for g, (_, gpus) in enumerate(groups):
        counts = {trainer: own[g] for trainer, own in plan.spread.items()}
        for id_, own in place(_wants(state, trainers, counts, gpus), gpus, rules).items():
            target[id_] = target.get(id_, NONE) | own
    return target


def _wants(
    state: State,
    trainers: Sequence[Trainer],
    counts: Mapping[int, int],
    pool: frozenset[str],
    leaves: str = "",
) -> list[Want]:
    """What trainers want, in the order in which they choose: those first that need whole nodes, or most."""
    found = [
        Want(
            trainer=t.id,
            count=counts[t.id],
            held=t.nodes & pool if t.nodes else NONE,
            training=frozenset(t.members),
            whole=t.spec.whole,
            user=t.spec.user,
            barred=state.kept_off.get(t.spec.user, NONE),
            leaves=leaves,
        )
        for t in trainers
        if t.id in counts
    ]
    return sorted(found, key=lambda w: (not w.whole, len(w.held) - w.count, w.trainer))


def trimmed(trainers: Sequence[Trainer], target: Allocation, state: State) -> Allocation:
    """The same GPUs, but for those that a trainer cannot use, as they make no size that it may have."""
    found = dict(target)
    for t in trainers:
        own = found.get(t.id, NONE)
        size = t.spec.fitting(len(own))
        if size < len(own):
            want = Want(trainer=t.id, count=size, held=own, training=frozenset(t.members))
            found.update(place([want], own, rules_of(state.settings)))
    return found


@dataclass(frozen=True, slots=True)
class Price:
    """What trainers are worth with the GPUs that they really get, on one node or on several. `rows` has their
    value by count, as the allocators have it, where the pool has no groups."""

    question: Problem
    groups: NodeGroups
    rows: Floats

    @classmethod
    def of(cls, question: Problem, groups: NodeGroups) -> Price:
        """Of this problem."""
        asked = () if groups else question.candidates
        return cls(question, groups, value.tables(asked, question.pool_size, question.t_fwd_s))

    def total(self, target: Allocation) -> float:
        """What a placement is worth."""
        everybody = self.question.candidates
        got = [target.get(c.trainer, NONE) for c in everybody]
        best = sum(self._best(j, own) for j, own in enumerate(got))
        t_fwd_s = self.question.t_fwd_s
        return best - sum(
            value.slower(c, len(own), t_fwd_s)
            for c, own in zip(everybody, got, strict=True)
            if _split(c, own)
        )

    def _best(self, j: int, own: frozenset[str]) -> float:
        """What a trainer's GPUs are worth if they are as near each other as can be."""
        if not self.groups:
            return float(self.rows[j, len(own)])
        spread = tuple(len(own & gpus) for _, gpus in self.groups)
        return value.worth(self.question.candidates[j], self.question, spread)

    def less(self, plan: Plan, target: Allocation) -> dict[int, int]:
        """Trainers that are to get less in the next plan, as they cannot have or use what this one gives."""
        less, split = {}, {}
        for c in self.question.candidates:
            own = target.get(c.trainer, NONE)
            if len(own) < plan.counts.get(c.trainer, 0):
                less[c.trainer] = max(len(own), c.n_min - 1)
            elif _split(c, own):
                largest = max(map(len, by_node(own).values()))
                split[c.trainer] = largest
                if curve.rate(c.across, len(own)) <= curve.rate(c.curve, largest):
                    less[c.trainer] = largest
        return less or split


def _split(c: Candidate, own: frozenset[str]) -> bool:
    """Whether a trainer is on several nodes, and counts were planned as if it were on one."""
    return bool(c.across) and 1 < len(own) <= c.alone and len(nodes_of(own)) > 1


def _told(first: Plan, found: Found, gap: float) -> Plan:
    """The plan with what its placement is worth, and how far that is from what any could be."""
    counts = {trainer: len(found.target.get(trainer, NONE)) for trainer in first.counts}
    bound = max(first.bound, found.worth)
    near = _near(found, bound, gap)
    status = PlanStatus.FEASIBLE if first.proven and not near else first.status
    note = first.note if status is first.status else "GPUs of nodes: the bound is that of counts alone"
    return replace(first, counts=counts, objective=found.worth, bound=bound, status=status, note=note)
