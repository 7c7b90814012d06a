"""A plan over those that may hold nodes, and which nodes they get. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from bftrainer.allocate.assign import assign
from bftrainer.engine.facts import Parts
from bftrainer.engine.question import problem
from bftrainer.engine.queue import rank
from bftrainer.engine.state import Draft, Solve, State
from bftrainer.engine.take import without
from bftrainer.model.problem import Plan
from bftrainer.model.trainer import Scalability, Trainer
from bftrainer.performance.estimate import estimates_of


def decide(state: State, taken: Draft, now: float, solve: Solve) -> tuple[Plan | None, dict[int, Trainer]]:
    """Plan anew. Those who wait and are given nodes become active, in `taken`, too."""
    asked: list[Trainer] = []
    if not taken.draining:
        asked = list(taken.active.values())
        if state.settings.max_parallel is None:
            asked = sorted(asked + taken.waiting.eligible(len(taken.pool)), key=rank)
            per_trainer = state.settings.nodes_per_trainer
            if per_trainer is not None:
                asked = asked[: math.ceil(len(taken.pool) / per_trainer)]
    current = {t.id: t.nodes for t in taken.active.values() if t.nodes}
    plan, target = None, dict[int, frozenset[str]]()
    if asked:
        seen = replace(
            state,
            pool=taken.pool,
            since=taken.since,
            facts=taken.facts,
            survival=taken.survival,
            programs=taken.programs,
        )
        question, parts = problem(seen, tuple(asked), now)
        plan = solve(question)
        taken.estimates = {
            t.id: estimates
            for t, estimates in zip(asked, estimates_of(tuple(asked), taken.programs), strict=True)
            if t.spec.scalability is Scalability.AUTO
        }
        members = {t.id: frozenset(t.members) for t in asked}
        for counts, nodes in _shares(plan, parts) or [(plan.counts, taken.pool)]:
            held = {t: own & nodes for t, own in current.items()}
            for id_, own in assign(counts, held, nodes, members).items():
                target[id_] = target.get(id_, frozenset()) | own
        for t in asked:
            if t.id in taken.waiting and target.get(t.id):
                taken.waiting = taken.waiting.remove(t.id)
                taken.active[t.id] = t
        plan = replace(
            plan,
            counts={i: n for i, n in plan.counts.items() if i in taken.active},
            allocation={i: nodes for i, nodes in target.items() if i in taken.active},
        )
    after = dict(taken.active)
    for id_ in taken.active.keys() & (target.keys() | current.keys()):
        trainer, nodes = after[id_], target.get(id_, frozenset())
        if nodes != trainer.nodes:
            after[id_] = replace(without(trainer, trainer.nodes - nodes), nodes=nodes)
    return plan, after


def _shares(plan: Plan, parts: Parts) -> list[tuple[Mapping[int, int], frozenset[str]]]:
    """Per group: how many of its nodes each trainer gets, and which they are."""
    return [({t: own[g] for t, own in plan.spread.items()}, nodes) for g, (_, nodes) in enumerate(parts)]
