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
from itertools import combinations

from bftrainer.allocate import relax, value
from bftrainer.allocate.place import NONE, Want, counts_of, nodes_of, place, within
from bftrainer.allocate.rules import Rules
from bftrainer.engine.gpus.polish import GpuHolder, Ground, PolishedPlacement, polished
from bftrainer.engine.node_info import NodeGroups
from bftrainer.engine.state import Solve, State
from bftrainer.model.policy import EngineSettings, ShareNodes
from bftrainer.model.problem import Allocation, Candidate, Plan, PlanStatus, Problem
from bftrainer.model.trainer import Trainer
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats

ROUNDS = 2
"""Times that counts are planned, at most."""
NEAR = 5e-3
"""Counts are not planned again for a placement that is below the bound by this share at most."""
LARGE = 1_000
"""Pools of more GPUs have better placements looked for only if one is not `NEAR` the bound."""
TRIES = 10_000
"""Ways of trainers that the search for better placements looks at, at most."""


def rules_of(settings: EngineSettings) -> Rules:
    """Return who may share a node, as the settings say."""
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
    best = found = PolishedPlacement(float("-inf"))
    for _ in range(ROUNDS):
        target = trimmed(trainers, assigned(state, trainers, plan, groups), state)
        found = PolishedPlacement(price.total(target), target)
        best = max(best, found, key=lambda one: one.worth)
        less = price.less(plan, target)
        if _near(best, first.bound, NEAR) or all(most.get(t, n + 1) <= n for t, n in less.items()):
            break
        most |= less
        plan = solve(bounded(question, most))
    gap = NEAR if len(state.pool) > LARGE else state.settings.milp_gap
    if not groups and not _near(best, first.bound, gap):
        enough = first.bound - max(gap, relax.EXACT) * max(1.0, abs(first.bound))
        holders, ground = holders_of(state, trainers, price), ground_of(state, question)
        starts = [best, *([] if len(state.pool) > LARGE else _as_held(holders, question, price))]
        better = [polished(holders, start, ground, enough=enough, tries=TRIES) for start in starts]
        best = max((replace(one, worth=price.total(one.target)) for one in better), key=lambda one: one.worth)
    return _told(first, best, state.settings.milp_gap), best.target


def _as_held(holders: Sequence[GpuHolder], question: Problem, price: Price) -> list[PolishedPlacement]:
    """The placement in which all keep what they hold, if they may: where counts have made some grow, these
    may no longer lose the GPUs with which they keep others from growing."""
    target = {holder.trainer: holder.held for holder in holders}
    worth = price.total(target)
    full = any(sum(len(target.get(t, ())) for t in cap.trainers) > cap.n_max for cap in question.caps)
    return [] if full or worth == float("-inf") else [PolishedPlacement(worth, target)]


def _near(found: PolishedPlacement, bound: float, gap: float) -> bool:
    return bound - found.worth <= max(gap, relax.EXACT) * max(1.0, abs(bound))


def bounded(question: Problem, most: Mapping[int, int]) -> Problem:
    """Return the problem in which these trainers get at most these nodes or GPUs, or the next size below."""
    found = (
        replace(c, n_max=c.sizes.floor(most[c.trainer])) if most.get(c.trainer, c.n_max) < c.n_max else c
        for c in question.candidates
    )
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
    return uncrowded(target, trainers, rules)


def uncrowded(target: Allocation, trainers: Sequence[Trainer], rules: Rules) -> Allocation:
    """The same GPUs, but for those that trainers may not gain: GPUs of a node may be in several groups, and
    each group is placed without an eye on the others."""
    known, found = {t.id: t for t in trainers}, dict(target)
    while (pair := _crowd(found, known, rules)) is not None:
        gained = [t for t in pair if found[t] - known[t].nodes]
        if not gained:
            break
        last = gained[-1]
        found[last] &= known[last].nodes
    return found


def _crowd(target: Allocation, known: Mapping[int, Trainer], rules: Rules) -> tuple[int, int] | None:
    """The first two trainers on one node that may not be there together; None if there are none."""
    on = {t: nodes_of(own) for t, own in target.items() if t in known}
    there: dict[str, list[int]] = {}
    for t, nodes in on.items():
        for node in nodes:
            there.setdefault(node, []).append(t)
    for trainers in there.values():
        for one, other in combinations(trainers, 2):
            strangers = rules.strangers(known[one].spec.user, known[other].spec.user)
            if strangers or rules.crowded(len(on[one]) > 1, len(on[other]) > 1):
                return one, other
    return None


def _wants(
    state: State,
    trainers: Sequence[Trainer],
    counts: Mapping[int, int],
    pool: frozenset[str],
) -> list[Want]:
    """Return the trainers' wants in order of choice: those first that need whole nodes, or most."""
    found = [
        Want(
            trainer=t.id,
            count=counts[t.id],
            most=t.spec.n_max,
            held=within(t.nodes, pool),
            training=t.members,
            whole=t.spec.whole,
            user=t.spec.user,
            barred=state.kept_off.get(t.spec.user, NONE),
        )
        for t in trainers
        if t.id in counts
    ]
    return sorted(found, key=lambda w: (not w.whole, len(w.held) - w.count, w.trainer))


def holders_of(state: State, trainers: Sequence[Trainer], price: Price) -> list[GpuHolder]:
    """The trainers with what they are worth by count."""
    return [
        GpuHolder(
            trainer=t.id,
            user=t.spec.user,
            held=within(t.nodes, state.pool),
            training=t.members,
            whole=t.spec.whole,
            alone=row,
            across=across,
        )
        for t, row, across in zip(trainers, price.rows.tolist(), price.across().tolist(), strict=True)
    ]


def ground_of(state: State, question: Problem) -> Ground:
    """Return where trainers may be. Nodes with GPUs that a user is kept off stay as they are: the search
    counts GPUs and does not tell them apart."""
    off = NONE.union(*state.kept_off.values()) & state.pool
    return Ground(pool=state.pool, still=nodes_of(off), caps=question.caps, rules=rules_of(state.settings))


def trimmed(trainers: Sequence[Trainer], target: Allocation, state: State) -> Allocation:
    """The same GPUs, but for those that a trainer cannot use, as they make no size that it may have."""
    found = dict(target)
    for t in trainers:
        own = found.get(t.id, NONE)
        size = t.spec.fitting(len(own))
        if size < len(own):
            before = own & t.nodes
            grows = size >= len(before)  # then it keeps all that it has: nobody migrates
            first = before if grows else t.members
            want = Want(trainer=t.id, count=size, held=own if grows else before, training=first)
            found.update(place([want], own, rules_of(state.settings)))
    return found


@dataclass(frozen=True, slots=True)
class Price:
    """Values trainers with the GPUs that they really get, on one node or on several. `rows` has their
    value by count, as the allocators have it, where the pool has no groups."""

    question: Problem
    groups: NodeGroups
    rows: Floats

    @classmethod
    def of(cls, question: Problem, groups: NodeGroups) -> Price:
        """Return the prices of this problem."""
        asked = () if groups else question.candidates
        return cls(question, groups, value.tables(asked, question.pool_size, question.t_fwd_s))

    def total(self, target: Allocation) -> float:
        """Return the worth of a placement."""
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
        """Return the worth of a trainer's GPUs as near each other as can be."""
        if not self.groups:
            return float(self.rows[j, len(own)])
        spread = tuple(len(own & gpus) for _, gpus in self.groups)
        return value.worth(self.question.candidates[j], self.question, spread)

    def across(self) -> Floats:
        """Return trainers' worth by count on several nodes, where the pool has no groups."""
        found = self.rows.copy()
        for row, c in zip(found, self.question.candidates, strict=True):
            if c.across:
                most = min(c.alone, len(row) - 1)
                row[2 : most + 1] -= [value.slower(c, n, self.question.t_fwd_s) for n in range(2, most + 1)]
        return found

    def less(self, plan: Plan, target: Allocation) -> dict[int, int]:
        """Trainers that are to get less in the next plan, as they cannot have or use what this one gives."""
        less, split = {}, {}
        for c in self.question.candidates:
            own = target.get(c.trainer, NONE)
            if len(own) < plan.counts.get(c.trainer, 0):
                less[c.trainer] = max(len(own), c.n_min - 1)
            elif _split(c, own):
                largest = max(counts_of(own).values())
                split[c.trainer] = largest
                if curve.rate(c.across, len(own)) <= curve.rate(c.curve, largest):
                    less[c.trainer] = largest
        return less or split


def _split(c: Candidate, own: frozenset[str]) -> bool:
    """Return whether a trainer is on several nodes, and counts were planned as if it were on one."""
    return bool(c.across) and 1 < len(own) <= c.alone and len(counts_of(own)) > 1


def _told(first: Plan, found: PolishedPlacement, gap: float) -> Plan:
    """The plan with what its placement is worth, and how far that is from what any could be."""
    counts = {trainer: len(found.target.get(trainer, NONE)) for trainer in first.counts}
    if found.proven:
        note = "GPUs of nodes: all placements were searched"
        done = replace(first, counts=counts, objective=found.worth, bound=found.worth, note=note)
        return replace(done, status=PlanStatus.OPTIMAL)
    bound = max(first.bound, found.worth)
    near = _near(found, bound, gap)
    status = PlanStatus.FEASIBLE if first.proven and not near else first.status
    note = first.note if status is first.status else "GPUs of nodes: the bound is that of counts alone"
    return replace(first, counts=counts, objective=found.worth, bound=bound, status=status, note=note)
