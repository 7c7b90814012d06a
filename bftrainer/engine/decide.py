"""A new plan for the trainers that may hold nodes, and the nodes that each of them gets. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bftrainer.allocate.assign import assign
from bftrainer.allocate.place import counts_of
from bftrainer.engine.gpus import plan as gpu_plan
from bftrainer.engine.gpus.plan import bounded
from bftrainer.engine.node_info import NodeGroups
from bftrainer.engine.pairs import Pair, hosts_of, paired, proposed
from bftrainer.engine.question import by_user, caps_of, goodput_counts, problem_of, shares_now
from bftrainer.engine.queueing.fair_shares import STEADY, Portion, claim_to_more, entered, shares_of
from bftrainer.engine.queueing.places import dealt
from bftrainer.engine.queueing.queue import rank
from bftrainer.engine.standing import first_in_line
from bftrainer.engine.state import Solve, State
from bftrainer.engine.take import without
from bftrainer.model.gpus import node_of
from bftrainer.model.policy import Share
from bftrainer.model.problem import Allocation, Plan, Problem
from bftrainer.model.trainer import Scalability, Trainer
from bftrainer.performance.estimate import Estimates, costs_of, estimates_of

NONE: frozenset[str] = frozenset()
MOST_RAISED = 2
"""Users, at most, for whom a plan is repeated where others leave nodes unused."""
MOST_BOUNDED = 3
"""Times, at most, that a plan is repeated where trainers may not use the nodes that it has for them."""


def decide(state: State, now: float, solve: Solve) -> tuple[Plan | None, State]:
    """Plan again; return the plan and the state with its allocation.

    Waiting trainers that are given nodes become active. The plan is None if no trainer may have nodes.
    """
    ground = _without_guests(state)
    asked = candidates(ground, now)
    if not asked:
        return None, _entered(_allocated(state, {}), {}, now)
    goodput = goodput_counts(state.settings)
    known = estimates_of(asked, state.programs, goodput=goodput)
    plan, target = _with_pairs(ground, asked, known, proposed(asked, state.active), now, solve)
    if ground.portion.whole and (lacking := _lacking(ground, asked, target, now)):
        cleared = _cleared(ground, asked, now)
        others = candidates(cleared, now)
        theirs = estimates_of(others, state.programs, goodput=goodput)
        other, there = _with_pairs(cleared, others, theirs, proposed(others, state.active), now, solve)
        if _lacking(cleared, others, there, now) < lacking:
            asked, known, plan, target = others, theirs, other, there
    own = by_user(asked)
    state = _activated(replace(state, estimates=_learnt(asked, known)), asked, target)
    plan = replace(
        plan,
        counts={id_: n for id_, n in plan.counts.items() if id_ in state.active},
        allocation={id_: nodes for id_, nodes in target.items() if id_ in state.active},
    )
    after = _allocated(state, target)
    if len(own) > 1 and state.settings.user_shares:
        after = _steadied(state, after, asked, now)
    return plan, _entered(after, own, now)


def _without_guests(state: State) -> State:
    """The state in which each node has one trainer: those that take turns on nodes of another have none."""
    guests = hosts_of(state.active)
    if not guests:
        return state
    active = {id_: without(t, t.nodes) if id_ in guests else t for id_, t in state.active.items()}
    return replace(state, active=active)


def _lacking(state: State, asked: Sequence[Trainer], target: Allocation, now: float) -> frozenset[str]:
    """The users that get nothing of a share that would do for one of their trainers."""
    fair, own, portion = shares_now(state, asked, now), by_user(asked), state.portion
    return frozenset(
        user
        for user, theirs in own.items()
        if not any(target.get(t.id) for t in theirs)
        and fair.get(user, 0) >= portion.needed(min(t.spec.n_min for t in theirs))
    )


def _cleared(state: State, asked: Sequence[Trainer], now: float) -> State:
    """The state in which no user is on more nodes than its share, for one that gets nothing as all nodes have
    others. Counts alone do not see that: two trainers of one GPU each may be on two nodes."""
    fair, active, off = shares_now(state, asked, now), dict(state.active), dict(state.kept_off)
    for user, theirs in by_user(asked).items():
        held = counts_of(NONE.union(*(t.nodes for t in theirs)))
        most = sorted(held, key=lambda node: (-held[node], node))[: fair.get(user, 0)]
        lost = frozenset(gpu for t in theirs for gpu in t.nodes if node_of(gpu) not in most)
        off[user] = off.get(user, NONE) | lost
        active |= {t.id: without(t, t.nodes & lost) for t in theirs if t.nodes & lost}
    return replace(state, active=active, kept_off=off)


def _with_pairs(
    state: State,
    asked: tuple[Trainer, ...],
    known: tuple[Estimates, ...],
    pairs: Sequence[Pair],
    now: float,
    solve: Solve,
) -> tuple[Plan, Allocation]:
    """The plan, and the nodes of each trainer, with those pairs that make it worth more."""
    stated = problem_of(state, asked, now, known)
    plan, target = _whole_plan(state, asked, (), now, solve, stated) or (None, {})
    assert plan is not None  # noqa: S101  without pairs there is always one
    kept: tuple[Pair, ...] = ()
    for pair in pairs:
        found = _whole_plan(state, asked, (*kept, pair), now, solve, stated)
        least = plan.objective * pair.margin
        if found is not None and found[0].objective > least and found[1].get(pair.host):
            (plan, target), kept = found, (*kept, pair)
    if not kept:
        return plan, target
    names = {t.id: t.spec.name for t in asked}
    told = [f"{names[p.host]} and {names[p.guest]} take turns (gain {p.gain:.2f})" for p in kept]
    note = "; ".join([*([plan.note] if plan.note else []), *told])
    return replace(plan, note=note), {**target, **{p.guest: target.get(p.host, NONE) for p in kept}}


def _whole_plan(
    state: State,
    asked: tuple[Trainer, ...],
    pairs: tuple[Pair, ...],
    now: float,
    solve: Solve,
    stated: tuple[Problem, NodeGroups],
) -> tuple[Plan, Allocation] | None:
    """The plan in which these pairs count as one trainer each, within what users may have; None: they
    cannot. `stated` is the problem without pairs, see `problem_of`."""
    plain, groups = stated
    question = paired(plain, pairs)
    if question is None:
        return None
    guests = {pair.guest for pair in pairs}
    asked = tuple(t for t in asked if t.id not in guests)
    planned = gpu_plan.planned if state.settings.share is Share.GPU else _planned
    plan, target = planned(state, asked, question, groups, solve)
    own = by_user(asked)
    if len(own) > 1 and state.settings.user_shares:
        more: dict[str, int] = {}
        while user := _wants_more(state, question, own, target, more):  # of what others cannot use
            more[user] = _unused(state, target) - _room(question, own[user], target, state.portion)
            question = replace(question, caps=caps_of(state, asked, now, more))
            plan, target = planned(state, asked, question, groups, solve)
    return plan, target


def _steadied(before: State, after: State, asked: tuple[Trainer, ...], now: float) -> State:
    """The state in which trainers that give some of their nodes to others do not grow for a while."""
    left = {t.id: t.nodes for t in after.active.values() if t.nodes}
    shrunk = {t.id for t in asked if t.id in left and left[t.id] < t.nodes}
    if not shrunk:
        return after
    active = dict(after.active)
    for t, costs in zip(asked, costs_of(asked, before.programs), strict=True):
        if t.id in shrunk:
            until = now + STEADY * (costs.up.stall_s + costs.down.stall_s)
            active[t.id] = replace(active[t.id], steady_until=until)
    return replace(after, active=active)


def _wants_more(
    state: State,
    question: Problem,
    own: Mapping[str, Sequence[Trainer]],
    target: Allocation,
    more: Mapping[str, int],
) -> str:
    """The user that is owed most of those that can use no more of their shares, though they want nodes and
    some are left; "": none."""
    portion, left = state.portion, _unused(state, target)
    if len(more) >= MOST_RAISED or not left:
        return ""

    def full(theirs: Sequence[Trainer]) -> bool:
        room = _room(question, theirs, target, portion)
        none = [portion.needed(t.spec.n_min) for t in theirs if not target.get(t.id)]
        return room <= 0 or any(room < least <= left for least in none)

    return max(
        (user for user, theirs in own.items() if user not in more and full(theirs)),
        key=lambda user: claim_to_more(user, own[user], state.ledger),
        default="",
    )


def _unused(state: State, target: Allocation) -> int:
    """Return how many portions nobody gets."""
    return state.portion.used(state.pool) - state.portion.used(NONE.union(*target.values()))


def _room(question: Problem, theirs: Sequence[Trainer], target: Allocation, portion: Portion) -> int:
    """Return how many portions more a user's trainers may get within its cap."""
    most = next((cap.n_max for cap in question.caps if any(t.id in cap.trainers for t in theirs)), 0)
    return portion.needed(most) - portion.used(NONE.union(*(target.get(t.id, NONE) for t in theirs)))


def _entered(state: State, own: Mapping[str, Sequence[Trainer]], now: float) -> State:
    """The state whose ledger has what users hold from now on."""
    weights = state.settings.user_shares
    if not weights:
        return state
    portion = state.portion
    shares = shares_of(portion.used(state.pool), weights, own, portion)
    return replace(state, ledger=entered(state.ledger, shares, state.active.values(), now, portion))


def _planned(
    state: State, asked: tuple[Trainer, ...], question: Problem, groups: NodeGroups, solve: Solve
) -> tuple[Plan, Allocation]:
    """The plan for a problem over whole nodes, and the nodes of each trainer."""
    plan = solve(question)
    target = _assigned(state, asked, plan, groups)
    most: dict[int, int] = {}
    for _ in range(MOST_BOUNDED):
        if not (short := _short(plan, target)):
            return plan, target
        most |= short  # others get what these cannot use
        plan = solve(bounded(question, most))
        target = _assigned(state, asked, plan, groups)
    sizes = {t.id: t.spec.fitting(len(target[t.id])) for t in asked if t.id in target}
    fitting = {t.id: _kept(state, t, sizes[t.id], target[t.id]) for t in asked if t.id in sizes}
    target = {**target, **fitting}
    plan = replace(plan, counts={id_: len(nodes) for id_, nodes in target.items()})
    return plan, target


def reduced(state: State) -> State:
    """The state in which trainers that cannot run on the nodes that they have left go down to the next size
    that they allow, without a plan. Those that have too few for any wait with what they have."""
    active = dict(state.active)
    for t in state.active.values():
        size = t.spec.fitting(len(t.nodes))
        if 0 < size < len(t.nodes):
            active[t.id] = without(t, t.nodes - _kept(state, t, size, t.nodes))
    return replace(state, active=active)


def _kept(state: State, t: Trainer, size: int, nodes: frozenset[str]) -> frozenset[str]:
    """Return the `size` of these nodes that a trainer keeps."""
    if state.settings.share is Share.GPU:
        return gpu_plan.trimmed([t], {t.id: nodes}, state)[t.id]
    return assign({t.id: size}, {t.id: nodes}, nodes, {t.id: frozenset(t.members)})[t.id]


def candidates(state: State, now: float) -> tuple[Trainer, ...]:
    """The trainers among which nodes are shared out, none while the site drains. Their order decides where
    plans are equally good: those that hold nodes first, then by priority and arrival."""
    if state.draining:
        return ()
    placed = (t for t in state.active.values() if t.id not in state.displaced and not state.set_aside(t))
    found = [t for t in placed if _seats(state, t)]
    if state.settings.max_parallel is None:
        found = sorted(found + _eligible(state, now), key=rank)
        per_trainer = state.settings.nodes_per_trainer
        if per_trainer is not None:
            found = dealt(found, state.settings.user_shares)[: math.ceil(len(state.pool) / per_trainer)]
    return tuple(sorted(found, key=lambda t: (not t.nodes, rank(t))))


def _seats(state: State, t: Trainer) -> bool:
    """Return whether the pool has nodes with enough GPUs for a trainer's workers."""
    if t.spec.workers < 2:
        return True
    return len(state.pool) - len(state.gpus.too_few(t.spec, state.pool) - t.nodes) >= t.spec.n_min


def _eligible(state: State, now: float) -> list[Trainer]:
    heads = state.waiting.eligible(len(state.pool), first_in_line(state.settings, now))
    return [t for t in heads if not state.set_aside(t) and _seats(state, t)]


def _assigned(state: State, candidates: tuple[Trainer, ...], plan: Plan, groups: NodeGroups) -> Allocation:
    """The nodes for the plan's counts, per group where the pool has groups. Nobody migrates."""
    members = {t.id: frozenset(t.members) for t in candidates}
    off = {t.id: own for t in candidates if (own := _barred(state, t))}
    target: dict[int, frozenset[str]] = {}
    for counts, nodes in _shares(plan, groups) or [(plan.counts, state.pool)]:
        held = {t.id: t.nodes & nodes for t in state.active.values() if t.nodes}
        for id_, own in assign(counts, held, nodes, members, off).items():
            target[id_] = target.get(id_, frozenset()) | own
    return target


def _barred(state: State, t: Trainer) -> frozenset[str]:
    """The nodes of the pool that a trainer gets only if it has them."""
    return state.kept_off.get(t.spec.user, NONE) | state.gpus.too_few(t.spec, state.pool)


def _short(plan: Plan, target: Allocation) -> dict[int, int]:
    """The trainers that get fewer nodes than planned, as they may not use those that are left; how many."""
    got = {id_: len(target.get(id_, ())) for id_ in plan.counts}
    return {id_: got[id_] for id_, n in plan.counts.items() if got[id_] < n}


def _shares(plan: Plan, groups: NodeGroups) -> list[tuple[Mapping[int, int], frozenset[str]]]:
    """For each group: how many of its nodes each trainer gets, and the group's nodes."""
    return [({t: own[g] for t, own in plan.spread.items()}, nodes) for g, (_, nodes) in enumerate(groups)]


def _learnt(candidates: tuple[Trainer, ...], known: tuple[Estimates, ...]) -> dict[int, Estimates]:
    """Return the plan's assumptions on the trainers that the engine learns about."""
    return {
        t.id: estimates
        for t, estimates in zip(candidates, known, strict=True)
        if t.spec.scalability is Scalability.AUTO
    }


def _activated(state: State, candidates: tuple[Trainer, ...], target: Allocation) -> State:
    """The state in which waiting trainers that get nodes are active, still without these nodes."""
    waiting, active = state.waiting, dict(state.active)
    for t in candidates:
        if t.id in waiting and target.get(t.id):
            waiting = waiting.remove(t.id)
            active[t.id] = t
    return replace(state, waiting=waiting, active=active)


def _allocated(state: State, target: Allocation) -> State:
    """The state in which every active trainer has the nodes of `target`, and no others."""
    active = dict(state.active)
    for id_, trainer in state.active.items():
        nodes = target.get(id_, frozenset())
        if nodes != trainer.nodes:
            active[id_] = replace(without(trainer, trainer.nodes - nodes), nodes=nodes)
    return replace(state, active=active)
