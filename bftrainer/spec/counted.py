"""Converts a spec's sizes to nodes or GPUs, whichever are shared out. Pure."""

from __future__ import annotations

from bftrainer.model.gpus import on_whole_nodes
from bftrainer.model.policy import EngineSettings, Share
from bftrainer.model.trainer import TrainerSpec
from bftrainer.spec.located_yaml import SpecError


def counted(spec: TrainerSpec, settings: EngineSettings) -> TrainerSpec:
    """The spec with its sizes in what the settings share out.

    Raises:
        SpecError: it asks for GPUs where whole nodes are shared out, or cannot be had where GPUs are.
    """
    if settings.share is Share.GPU and spec.takes_turns:
        raise SpecError(
            f"share: time: {spec.name!r} would take turns on whole nodes, and single GPUs are shared out "
            "here (share: gpu); leave share out"
        )
    if settings.share is Share.GPU:
        if not spec.gpus and spec.workers not in (0, settings.gpus_per_node):
            raise SpecError(
                f"nodes.workers: {spec.workers}: each GPU is a worker's here (share: gpu), and a node has "
                f"{settings.gpus_per_node}; leave workers out"
            )
        return spec if spec.gpus else on_whole_nodes(spec, settings.gpus_per_node)
    if spec.gpus:
        raise SpecError(
            f"gpus: {spec.name!r} asks for {spec.n_min} to {spec.n_max} GPUs, and whole nodes are shared out "
            "here (share: node); give nodes: {max: N}, or ask the site's admins for share: gpu"
        )
    return spec
