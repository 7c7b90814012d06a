"""GPUs of a node, shared out one by one (`share: gpu`): each stands where a node does otherwise."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from bftrainer.model.machine import Slot
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Points, TrainerSpec


def gpus_of(node: str, count: int) -> tuple[str, ...]:
    """The names of a node's GPUs."""
    return tuple(str(Slot(node, i)) for i in range(count))


@lru_cache(maxsize=1 << 17)
def node_of(name: str) -> str:
    """The node of a GPU; of a whole node, itself."""
    return Slot.of(name).node


def on_whole_nodes(spec: TrainerSpec, gpus_per_node: int) -> TrainerSpec:
    """A trainer that was asked for in nodes, counted in their GPUs: it gets all of a node or none."""

    def scaled(points: Points) -> Points:
        return tuple((n * gpus_per_node, rate) for n, rate in points)

    listed = tuple(n * gpus_per_node for n in spec.sizes.listed)
    return replace(
        spec,
        n_min=spec.n_min * gpus_per_node,
        n_max=spec.n_max * gpus_per_node,
        sizes=AllowedSizes(listed=listed, multiple_of=spec.sizes.multiple_of * gpus_per_node),
        curve=None if spec.curve is None else scaled(spec.curve),
        curves=tuple((name, scaled(points)) for name, points in spec.curves),
        whole=gpus_per_node,
        workers=0,
    )
