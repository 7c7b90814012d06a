"""Facts on the pool's nodes, and the groups into which they divide it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bftrainer.engine import survival
from bftrainer.engine.state import State
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import DepartureGroups, EngineSettings
from bftrainer.model.problem import NodeGroup

NodeGroups = tuple[tuple[NodeGroup, frozenset[str]], ...]
"""The groups of a problem, each with its nodes. Empty if all nodes of the pool are alike."""
STEPS = 8
"""Steps of T_fwd to which expected times of departure are rounded down, so that there are few groups."""


def with_reported(
    settings: EngineSettings,
    known: Mapping[str, NodeInfo],
    pool: frozenset[str],
    reported: Mapping[str, NodeInfo],
    now: float,
    joined: frozenset[str] = frozenset(),
) -> Mapping[str, NodeInfo]:
    """Return what is known of the nodes of `pool` after a report about some of them.

    What was known of nodes that have `joined` since is forgotten. A node keeps its class and departure group
    for as long as it stays; its expected end is always the latest one reported. Empty if there is nothing to
    know: no report, and settings that do not distinguish nodes.
    """
    distinguished = settings.node_classes or settings.departure_groups != DepartureGroups.NONE
    if not known and not reported and not distinguished:
        return known
    info = {node: own for node, own in known.items() if node in pool and node not in joined}
    for node in (pool - info.keys()) | (pool & reported.keys()):
        new, old = reported.get(node, NodeInfo()), info.get(node, NodeInfo())
        node_class, group = new.node_class or old.node_class, new.group or old.group
        if node not in info:
            node_class = node_class or settings.class_of(node)
            group = group or _departure_group(settings, node, now)
        info[node] = NodeInfo(node_class=node_class, group=group, until=new.until)
    return info


def _departure_group(settings: EngineSettings, node: str, now: float) -> str:
    """The label of the nodes with which a node that joins `now` is expected to leave; "" for none."""
    match settings.departure_groups:
        case DepartureGroups.JOINED:
            return f"joined {now}"
        case DepartureGroups.CABINET:
            return node_of(node).rstrip("0123456789")
        case DepartureGroups.NONE:
            return ""


def grouped(state: State, now: float, t_fwd_s: float) -> NodeGroups:
    """The pool in groups of nodes that are alike to the allocators; none if all nodes are alike."""
    if not state.node_info:
        return ()
    found: dict[tuple[str, str, float], set[str]] = {}
    for node in state.pool:
        info = state.node_info.get(node, NodeInfo())
        remaining = _remaining_s(info.until, now, t_fwd_s)
        found.setdefault((info.node_class, info.group, remaining), set()).add(node)
    groups = []
    for (node_class, label, remaining), nodes in sorted(found.items()):
        departures = _departures(state, nodes, now, t_fwd_s) if label else 0.0
        group = NodeGroup(
            size=len(nodes), node_class=node_class, remaining_s=remaining, departures=departures
        )
        groups.append((group, frozenset(nodes)))
    return tuple(groups)


def _remaining_s(until: float | None, now: float, t_fwd_s: float) -> float:
    """For how long a node is expected to stay (s), rounded down; infinite beyond T_fwd."""
    if until is None or until >= now + t_fwd_s:
        return float("inf")
    return max(0, int((until - now) / t_fwd_s * STEPS)) * t_fwd_s / STEPS


def _departures(state: State, nodes: set[str], now: float, t_fwd_s: float) -> float:
    """Return the probability that a departure group leaves within T_fwd, by its time in the pool."""
    ages = np.array([now - min(state.since[node] for node in nodes)])
    return 1.0 - float(survival.stay(state.survival, ages, t_fwd_s)[0])
