"""The allocation problem that a state poses. Pure."""

from __future__ import annotations

import numpy as np

from bftrainer.allocate import metric
from bftrainer.engine import survival
from bftrainer.engine.branches import Room, with_branches
from bftrainer.engine.node_info import NodeGroups, grouped
from bftrainer.engine.shares import entitled
from bftrainer.engine.state import State
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Candidate, Cap, Problem
from bftrainer.model.trainer import RescaleCosts, Trainer
from bftrainer.performance.estimate import Estimates, SharedObservations, costs_of, estimates_of, limits

LAST = 1e-6
"""A trainer that yields counts so little: it gets the nodes that no other wants."""


def problem_of(state: State, trainers: tuple[Trainer, ...], now: float) -> tuple[Problem, NodeGroups]:
    """The allocation problem over `trainers`, and its groups with their nodes (none if all are alike)."""
    settings, pool = state.settings, state.pool
    t_fwd_s = settings.t_fwd_s
    if t_fwd_s is None:
        ages = np.array([now - state.since[node] for node in pool])
        t_fwd_s = survival.forward_time(state.survival, ages)
    groups = grouped(state, now, t_fwd_s)
    room = Room.of(pool) if any(t.spec.across for t in trainers) else Room()
    return Problem(
        pool_size=len(pool),
        t_fwd_s=t_fwd_s,
        candidates=tuple(
            with_branches(_candidate(t, settings, state.programs, estimates, costs, groups, now), t, room)
            for t, estimates, costs in zip(
                trainers,
                estimates_of(trainers, state.programs),
                costs_of(trainers, state.programs),
                strict=True,
            )
        ),
        caps=_caps(state, trainers),
        groups=tuple(group for group, _ in groups),
    ), groups


def _candidate(
    t: Trainer,
    settings: EngineSettings,
    programs: SharedObservations,
    estimates: Estimates,
    costs: RescaleCosts,
    groups: NodeGroups,
    now: float,
) -> Candidate:
    points = estimates[None].points
    n_min, n_max = limits(t, estimates, programs, settings.profile_sizes, now)
    return Candidate(
        trainer=t.id,
        n_min=n_min,
        n_max=n_max,
        current=len(t.nodes),
        curve=metric.metric(settings.objective, points, t.spec.priority),
        across=metric.metric(settings.objective, t.spec.across or (), t.spec.priority, points),
        weight=weight_of(t, settings, now),
        costs=costs,
        held=tuple(len(nodes & t.nodes) for _, nodes in groups) if t.nodes else (),
        sizes=t.spec.sizes,
        curves=tuple(
            (name, metric.metric(settings.objective, own.points, t.spec.priority, points))
            for name, own in estimates.items()
            if name is not None
        ),
    )


def weight_of(trainer: Trainer, settings: EngineSettings, now: float) -> float:
    """The weight with which a trainer competes for nodes: next to none for one that yields to others.

    Without P_jmax it ages: every `ageing_s` since the submission adds the spec's weight once more. So
    trainers that came later outbid an old one for a limited time only, and none starves.
    """
    own = trainer.spec.weight * (LAST if trainer.yields else 1.0)
    if settings.max_parallel is not None or settings.ageing_s is None:
        return own
    return own * (1.0 + max(0.0, now - trainer.submitted_at) / settings.ageing_s)


def _caps(state: State, trainers: tuple[Trainer, ...]) -> tuple[Cap, ...]:
    most = state.settings.user_max_nodes
    shares = state.settings.user_shares
    if most is None and not shares and not state.barred and not state.kept_off:
        return ()
    own: dict[str, list[Trainer]] = {}
    for t in trainers:
        own.setdefault(t.spec.user, []).append(t)
    fair = entitled(len(state.pool), shares, own) if shares else {}
    caps = []
    for user, theirs in own.items():
        bounds = [bound for bound in (most, fair.get(user)) if bound is not None]
        if user in state.barred:  # it keeps what it runs on
            bounds.append(sum(len(t.members) for t in theirs))
        if off := state.kept_off.get(user, frozenset()) & state.pool:
            bounds.append(len(state.pool) - len(off.difference(*(t.nodes for t in theirs))))
        if bounds:
            caps.append(Cap(trainers=frozenset(t.id for t in theirs), n_max=min(bounds)))
    return tuple(caps)
