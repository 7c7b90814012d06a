"""A plan where GPUs are shared out (`share: gpu`): counts, and the GPUs of each trainer. Pure.

The allocators count with GPUs as they do with nodes, and take it for granted that a trainer that fits on one
node gets its GPUs there. `allocate.place` gives out GPUs for their counts. Where trainers come out
with fewer, or on several nodes though one could have held them, counts are planned again that take this for
granted; of all plans the one is taken whose placement is worth most. The counts that the allocators found
first bound them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bftrainer.allocate import relax, value
from bftrainer.allocate.place import NONE, Rules, Want, by_node, nodes_of, place
from bftrainer.engine.node_info import NodeGroups
from bftrainer.engine.polish import Found, Move, polished
from bftrainer.engine.state import Solve, State
from bftrainer.model.policy import EngineSettings, ShareNodes
from bftrainer.model.problem import Allocation, Candidate, Plan, PlanStatus, Problem
from bftrainer.model.trainer import Trainer
from bftrainer.performance import curve

ROUNDS = 4
TRIES = 8000
"""So often counts are planned at most."""


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
    best: tuple[Plan, Allocation] | None = None
    bound = float("-inf")
    for _ in range(ROUNDS):
        plan = solve(bounded(question, most))
        target = trimmed(trainers, assigned(state, trainers, plan, groups), state)
        worth = total(question, target, groups)
        if best is None:
            bound = plan.bound
        if best is None or worth > best[0].objective:
            best = replace(plan, objective=worth), target
        less = _less(question, plan, target)
        if all(most.get(t, n + 1) <= n for t, n in less.items()):
            break
        most |= less
    if best is None:
        raise AssertionError("no round was played")
    plan, target = best
    if not groups and bound - plan.objective > state.settings.milp_gap * max(1.0, abs(bound)):

        def attempt(move: Move) -> Found:
            wants = _wants(state, trainers, move.counts, state.pool, move.left)
            wants.sort(key=lambda want: want.trainer != move.first)
            there = trimmed(trainers, place(wants, state.pool, rules_of(state.settings)), state)
            return Found(total(question, there, groups), there)

        size = len(state.pool)
        found = polished(
            question.candidates, Found(plan.objective, target), size, TRIES // max(1, size), attempt
        )
        plan, target = replace(plan, objective=found.worth), found.target
    return _told(plan, target, max(bound, plan.objective), state.settings.milp_gap), target


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


def total(question: Problem, target: Allocation, groups: NodeGroups) -> float:
    """What trainers are worth with the GPUs that they really get, on one node or on several."""
    got = [target.get(c.trainer, NONE) for c in question.candidates]
    if groups:
        best = [
            value.worth(c, question, tuple(len(own & gpus) for _, gpus in groups))
            for c, own in zip(question.candidates, got, strict=True)
        ]
    else:
        rows = value.tables(question.candidates, question.pool_size, question.t_fwd_s)
        best = [float(row[len(own)]) for row, own in zip(rows, got, strict=True)]
    return sum(best) - sum(
        value.slower(c, len(own), question.t_fwd_s)
        for c, own in zip(question.candidates, got, strict=True)
        if _split(c, own)
    )


def _split(c: Candidate, own: frozenset[str]) -> bool:
    """Whether a trainer is on several nodes, and counts were planned as if it were on one."""
    return bool(c.across) and 1 < len(own) <= c.alone and len(nodes_of(own)) > 1


def _less(question: Problem, plan: Plan, target: Allocation) -> dict[int, int]:
    """Trainers that are to get less in the next plan, as they cannot have or use what this one gives them."""
    less, split = {}, {}
    for c in question.candidates:
        own = target.get(c.trainer, NONE)
        if len(own) < plan.counts.get(c.trainer, 0):
            less[c.trainer] = max(len(own), c.n_min - 1)
        elif _split(c, own):
            largest = max(map(len, by_node(own).values()))
            split[c.trainer] = largest
            if curve.rate(c.across, len(own)) <= curve.rate(c.curve, largest):
                less[c.trainer] = largest
    return less or split


def _told(plan: Plan, target: Allocation, bound: float, gap: float) -> Plan:
    """The plan with what its placement is worth, and how far that is from what any could be."""
    counts = {trainer: len(target.get(trainer, NONE)) for trainer in plan.counts}
    near = bound - plan.objective <= max(gap, relax.EXACT) * max(1.0, abs(bound))
    status = PlanStatus.FEASIBLE if plan.proven and not near else plan.status
    note = plan.note if status is plan.status else "GPUs of nodes: the bound is that of counts alone"
    return replace(plan, counts=counts, bound=bound, status=status, note=note)
