"""What is known of the pool's nodes, and how it divides them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bftrainer.engine import survival
from bftrainer.engine.state import State
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Group

Parts = tuple[tuple[Group, frozenset[str]], ...]
STEPS = 8
"""Expected times of departure are rounded down to so many steps of T_fwd."""


def learn_facts(
    settings: EngineSettings,
    known: Mapping[str, NodeInfo],
    pool: frozenset[str],
    news: Mapping[str, NodeInfo],
    now: float,
    joined: frozenset[str] = frozenset(),
) -> Mapping[str, NodeInfo]:
    """What is known of the nodes of the pool, after `news` of some; nothing, where nothing is to know."""
    classes, groups = settings.node_classes, settings.departure_groups
    if not known and not news and not classes and groups == "none":
        return known
    facts = {node: fact for node, fact in known.items() if node in pool and node not in joined}
    for node in (pool - facts.keys()) | (pool & news.keys()):
        new, old = news.get(node, NodeInfo()), facts.get(node, NodeInfo())
        name = new.node_class or old.node_class
        label = new.group or old.group
        if node not in facts:
            name = name or next((c for c, nodes in classes.items() if node in nodes), "")
            label = label or {"joined": f"joined {now}", "cabinet": node.rstrip("0123456789")}.get(groups, "")
        facts[node] = NodeInfo(node_class=name, group=label, until=new.until)
    return facts


def parts_of(state: State, now: float, t_fwd_s: float) -> Parts:
    """The pool divided where its nodes differ; nothing where they are all alike."""
    if not state.facts:
        return ()
    found: dict[tuple[str, str, float], set[str]] = {}
    for node in state.pool:
        fact = state.facts.get(node, NodeInfo())
        remaining = float("inf")
        if fact.until is not None and fact.until < now + t_fwd_s:
            remaining = max(0, int((fact.until - now) / t_fwd_s * STEPS)) * t_fwd_s / STEPS
        found.setdefault((fact.node_class, fact.group, remaining), set()).add(node)
    parts = []
    for (name, label, remaining), nodes in sorted(found.items()):
        departures = 0.0
        if label:
            ages = np.array([now - min(state.since[node] for node in nodes)])
            departures = 1.0 - float(survival.stay(state.survival, ages, t_fwd_s)[0])
        group = Group(size=len(nodes), node_class=name, remaining_s=remaining, departures=departures)
        parts.append((group, frozenset(nodes)))
    return tuple(parts)
