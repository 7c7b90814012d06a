"""The engine's state after a restart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bftrainer.engine.decide import reduced
from bftrainer.engine.node_info import with_reported
from bftrainer.engine.queueing.places import with_places
from bftrainer.engine.queueing.queue import TrainerQueue, rank
from bftrainer.engine.state import State
from bftrainer.engine.take import without
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Trainer
from bftrainer.performance.estimate import observations_by_program


def restore(
    settings: EngineSettings, pool: frozenset[str], trainers: Iterable[Trainer], now: float = 0.0
) -> State:
    """The state after a restart at `now`, from stored trainers in order of arrival.

    Trainers lose the nodes that are no longer in the pool, and those of another class than most of their
    nodes; of what is left they keep a size that they allow, and have had it while no daemon ran. Trainers
    that are not among the active ones lose all nodes; the daemon then stops their workers.
    """
    info = with_reported(settings, {}, pool, {}, now)
    ordered = sorted(
        (_counted(without(t, t.nodes - of_one_class(t.nodes & pool, info)), now) for t in trainers),
        key=lambda t: (not t.nodes, -t.spec.priority),
    )
    holders = sum(bool(t.nodes) for t in ordered)
    first = holders if settings.max_parallel is None else min(holders, settings.max_parallel)
    waiting = sorted((without(t, t.nodes) for t in ordered[first:]), key=rank)
    state = State(
        settings=settings,
        pool=pool,
        active={t.id: t for t in ordered[:first]},
        waiting=TrainerQueue.of(waiting),
        since=dict.fromkeys(pool, now),
        node_info=info,
        programs=observations_by_program(ordered),
    )
    return with_places(reduced(state))


def _counted(t: Trainer, now: float) -> Trainer:
    """A trainer whose service is counted up to `now`; when it lost others of its nodes is not known."""
    return t if t.counted_at is None else replace(t, served_s=t.served(now), counted_at=now)


def of_one_class(nodes: frozenset[str], info: Mapping[str, NodeInfo]) -> frozenset[str]:
    """Those of `nodes` that are of the most frequent class among them."""
    classes: dict[str, set[str]] = {}
    for node in sorted(nodes):
        classes.setdefault(info.get(node, NodeInfo()).node_class, set()).add(node)
    return frozenset(max(classes.values(), key=len, default=()))
