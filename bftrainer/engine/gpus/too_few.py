"""Finds nodes with too few GPUs for the workers that a spec asks for (`nodes.workers`). Pure.

A node without GPUs, or of which nobody says how many it has, runs any number of workers: they compute on its
CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.model.trainer import TrainerSpec

NAMED = 3
"""Nodes named, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """Numbers of GPUs of nodes; 0 or nothing where they have none, or it is not known.

    Attributes:
        nodes: By node, as the scheduler shows it.
        told: By user and node, where the agent of the user's pilot says another number. It counts for that
            user's trainers alone, as an agent may say what it likes; of the daemon's own ("") for all.
        machine: By class and number of GPUs: how many nodes have it, idle or not.
    """

    nodes: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    machine: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def with_changes(
        self, nodes: Mapping[str, int], told: Mapping[str, Mapping[str, int | None]]
    ) -> NodeGpus:
        """Return the knowledge after these changes; of agents' numbers, None takes one back."""
        every = {user: {**self.told.get(user, {}), **changed} for user, changed in told.items()}
        said = {
            user: {node: count for node, count in own.items() if count is not None}
            for user, own in every.items()
        }
        kept = {user: own for user, own in {**self.told, **said}.items() if own}
        return replace(self, nodes={**self.nodes, **nodes} if nodes else self.nodes, told=kept)

    def count(self, node: str, user: str) -> int:
        """Return how many GPUs a user's pilot has on a node; 0: none, or not known."""
        said = (self.told[own].get(node) for own in (user, "") if own in self.told)
        return next((count for count in said if count is not None), self.nodes.get(node, 0))

    def too_few(self, spec: TrainerSpec, nodes: Collection[str]) -> frozenset[str]:
        """Those of `nodes` that cannot give each of a trainer's workers a GPU."""
        if spec.workers < 2 or not (self.nodes or self.told):
            return frozenset()
        return frozenset(node for node in nodes if 0 < self.count(node, spec.user) < spec.workers)

    def unusable(self, spec: TrainerSpec, node_class: str) -> int:
        """Return how many nodes of a class have too few GPUs for a trainer, by what the scheduler shows."""
        if spec.workers < 2:
            return 0
        return sum(n for gpus, n in self.machine.get(node_class, {}).items() if gpus < spec.workers)

    @property
    def most(self) -> int:
        """The most GPUs that a node of the machine has."""
        return max((gpus for own in self.machine.values() for gpus in own), default=0)


def kept_off(gpus: NodeGpus, spec: TrainerSpec, pool: Collection[str]) -> str:
    """Return the pool's nodes that a trainer does not get for want of GPUs, in words; empty if none."""
    short = sorted(gpus.too_few(spec, pool))
    if not short:
        return ""
    named = ", ".join(f"{node} ({gpus.count(node, spec.user)})" for node in short[:NAMED])
    more = f" and {len(short) - NAMED:,} more" if len(short) > NAMED else ""
    return (
        f"it asks for {spec.workers} workers a node (nodes.workers), and is kept off nodes with fewer GPUs: "
        f"{named}{more}"
    )
