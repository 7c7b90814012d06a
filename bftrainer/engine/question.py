"""The allocation problem that a state poses. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from bftrainer.allocate import metric
from bftrainer.allocate.goodput.sizes import UtilityBounds
from bftrainer.engine import standing, survival
from bftrainer.engine.gpus.branches import GpuRoom, with_branches
from bftrainer.engine.node_info import NodeGroups, grouped
from bftrainer.engine.queueing.fair_shares import EXACT, entitled
from bftrainer.engine.state import State
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Candidate, Cap, NodeGroup, Problem
from bftrainer.model.trainer import Points, RescaleCosts, Trainer
from bftrainer.performance import curve
from bftrainer.performance.estimate import Estimates, competing, costs_of, estimates_of, limits

NOTHING: Mapping[str, int] = MappingProxyType({})
LAST = 1e-6
"""A trainer that yields counts so little: it gets the nodes that no other wants."""

LEAST = 0.01
"""A start counts for at least this part of T_fwd."""


def problem_of(
    state: State, trainers: tuple[Trainer, ...], now: float, known: tuple[Estimates, ...] = ()
) -> tuple[Problem, NodeGroups]:
    """The allocation problem over `trainers`, and its groups with their nodes (none if all are alike).

    `known`: what is estimated of the trainers, where that is at hand."""
    settings, pool = state.settings, state.pool
    t_fwd_s = settings.t_fwd_s
    if t_fwd_s is None:
        ages = np.array([now - state.since[node] for node in pool])
        t_fwd_s = survival.forward_time(state.survival, ages)
    groups = grouped(state, now, t_fwd_s)
    room = GpuRoom.of(pool) if any(t.spec.across for t in trainers) else GpuRoom()
    found = known or estimates_of(trainers, state.programs, goodput=goodput_counts(settings))
    every = competing(trainers, found, state.programs)
    factors = standing.factors(trainers, every, settings, now).tolist()
    return Problem(
        pool_size=len(pool),
        t_fwd_s=t_fwd_s,
        candidates=tuple(
            with_branches(
                _candidate(t, state, estimates, _of_start(costs, t, t_fwd_s), groups, now, factor), t, room
            )
            for t, estimates, costs, factor in zip(
                trainers, every, costs_of(trainers, state.programs), factors, strict=True
            )
        ),
        caps=caps_of(state, trainers, now),
        groups=tuple(group for group, _ in groups),
    ), groups


def goodput_counts(settings: EngineSettings) -> bool:
    """Return whether a plan depends on goodputs: by its objective, or as nodes must be worth their cost."""
    return bool(settings.high_utility) or metric.counts_goodput(settings.objective)


def _of_start(costs: RescaleCosts, t: Trainer, t_fwd_s: float) -> RescaleCosts:
    """Return rescaling costs, where a trainer without nodes starts in less than all of T_fwd.

    A start interrupts nothing: in the published model it is free (eq. 16 with O(0) = 0). Its initialisation
    says how long its nodes give nothing; if that were T_fwd or more, a trainer would wait beside nodes that
    nobody wants, for good.
    """
    if t.nodes:
        return costs
    return replace(costs, up=replace(costs.up, init_s=min(costs.up.init_s, (1 - LEAST) * t_fwd_s)))


def _candidate(
    t: Trainer,
    state: State,
    estimates: Estimates,
    costs: RescaleCosts,
    groups: NodeGroups,
    now: float,
    factor: float,
) -> Candidate:
    settings, points, progress = state.settings, estimates[None].points, estimates[None].progress
    worth_of = partial(
        metric.metric, settings.objective, priority=t.spec.priority, power=settings.goodput_power
    )
    n_min, n_max = limits(t, estimates, state.programs, settings.profile_sizes, now)
    if t.nodes and now < t.steady_until:
        n_max = max(n_min, len(t.nodes))
    if settings.high_utility:
        n_max = _worthwhile(t, estimates[None].progress, settings, n_min, min(n_max, len(state.pool)))
    small: tuple[str, ...] = ()
    if short := state.gpus.too_few(t.spec, state.pool) - t.nodes:  # others have enough GPUs
        fit = _by_class(groups or ((NodeGroup(size=0), state.pool),), short)
        n_max = max(n_min, t.spec.fitting(min(n_max, max(fit.values()))))
        small = tuple(name for name, count in fit.items() if count < t.spec.n_min)
    return Candidate(
        trainer=t.id,
        n_min=n_min,
        n_max=n_max,
        current=len(t.nodes),
        curve=worth_of(points, progress=progress),
        across=worth_of(t.spec.across or (), unit=points),
        weight=factor * weight_of(t, settings, now),
        costs=costs,
        held=tuple(len(nodes & t.nodes) for _, nodes in groups) if t.nodes else (),
        sizes=t.spec.sizes,
        curves=tuple((name, ()) for name in small if groups)
        + tuple(
            (name, worth_of(own.points, unit=points, progress=own.progress, progress_unit=progress))
            for name, own in estimates.items()
            if name is not None
        ),
    )


def _worthwhile(t: Trainer, speeds: Points, settings: EngineSettings, n_min: int, most: int) -> int:
    """The most nodes that a trainer makes enough use of, see `UtilityBounds`: its speed-up over one node, by
    its nodes. It has at least as many as it needs."""
    if not speeds or most <= n_min:
        return max(most, n_min)
    rates = curve.table(speeds, most)[1:]
    bounds = UtilityBounds(settings.low_utility, settings.high_utility, n_min, most, t.spec.sizes)
    return bounds.size(rates / (rates[0] * np.arange(1, most + 1)), len(t.nodes)) if rates[0] > 0 else most


def _by_class(groups: NodeGroups, without: frozenset[str]) -> dict[str, int]:
    """Return how many nodes of each class there are, without some."""
    found: dict[str, int] = {}
    for group, nodes in groups:
        found[group.node_class] = found.get(group.node_class, 0) + len(nodes - without)
    return found


def weight_of(trainer: Trainer, settings: EngineSettings, now: float) -> float:
    """The weight with which a trainer competes for nodes: next to none for one that yields to others.

    Without P_jmax it ages: every `ageing_s` since the submission adds the spec's weight once more. So
    trainers that came later outbid an old one for a limited time only, and none starves.
    """
    own = trainer.spec.weight * (LAST if trainer.yields else 1.0)
    if settings.max_parallel is not None or settings.ageing_s is None:
        return own
    return own * (1.0 + max(0.0, now - trainer.submitted_at) / settings.ageing_s)


def caps_of(
    state: State, trainers: tuple[Trainer, ...], now: float, more: Mapping[str, int] = NOTHING
) -> tuple[Cap, ...]:
    """Return what users may hold together: of their shares, `more` portions than is their due."""
    most = state.settings.user_max_nodes
    shares = state.settings.user_shares
    if most is None and not shares and not state.barred and not state.kept_off:
        return ()
    own, portion = by_user(trainers), state.portion
    fair = shares_now(state, trainers, now)
    caps = []
    for user, theirs in own.items():
        bounds = [] if most is None else [most]
        if user in fair:
            bounds.append(math.floor((fair[user] + more.get(user, 0)) * portion.each + EXACT))
        if user in state.barred:  # it keeps what it runs on
            bounds.append(sum(len(t.members) for t in theirs))
        if off := state.kept_off.get(user, frozenset()) & state.pool:
            bounds.append(len(state.pool) - len(off.difference(*(t.nodes for t in theirs))))
        if bounds:
            caps.append(Cap(trainers=frozenset(t.id for t in theirs), n_max=min(bounds)))
    return tuple(caps)


def shares_now(state: State, trainers: Sequence[Trainer], now: float) -> dict[str, int]:
    """User -> the most portions of the pool that its trainers may hold; empty where users have no shares."""
    shares, portion = state.settings.user_shares, state.portion
    if not shares:
        return {}
    return entitled(portion.used(state.pool), shares, by_user(trainers), state.ledger, now, portion)


def by_user(trainers: Sequence[Trainer]) -> dict[str, list[Trainer]]:
    """User -> its trainers, in order."""
    own: dict[str, list[Trainer]] = {}
    for t in trainers:
        own.setdefault(t.spec.user, []).append(t)
    return own
