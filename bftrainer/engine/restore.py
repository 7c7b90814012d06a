"""The engine's state after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bftrainer.engine.facts import learn_facts
from bftrainer.engine.queue import Backlog
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

    Nodes that are no longer in the pool are taken out, and those that are of another class than most of
    a trainer's; whoever is not among the active ones holds none (the daemon finds their workers
    unwanted and has them leave).
    """
    facts = learn_facts(settings, {}, pool, {}, now)
    ordered = sorted(
        (without(t, t.nodes - of_one_class(t.nodes & pool, facts)) for t in trainers),
        key=lambda t: (not t.nodes, -t.spec.priority),
    )
    limit = sum(bool(t.nodes) for t in ordered) if settings.max_parallel is None else settings.max_parallel
    return State(
        settings=settings,
        pool=pool,
        active={t.id: t for t in ordered[:limit]},
        waiting=Backlog.of(without(t, t.nodes) for t in ordered[limit:]),
        since=dict.fromkeys(pool, now),
        facts=facts,
        programs=observations_by_program(ordered),
    )


def of_one_class(nodes: frozenset[str], facts: Mapping[str, NodeInfo]) -> frozenset[str]:
    """The nodes of the class that most of them are of."""
    classes: dict[str, set[str]] = {}
    for node in sorted(nodes):
        classes.setdefault(facts.get(node, NodeInfo()).node_class, set()).add(node)
    return frozenset(max(classes.values(), key=len, default=()))
