"""Converts a spec's sizes to nodes or GPUs, whichever are shared out. Pure."""

from __future__ import annotations

from bftrainer.messages.specs import GPUS_OF_WHOLE, TURNS_ON_WHOLE, WORKERS_OF_GPUS
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
        raise SpecError(TURNS_ON_WHOLE.say(name=spec.name))
    if settings.share is Share.GPU:
        if not spec.gpus and spec.workers not in (0, settings.gpus_per_node):
            raise SpecError(WORKERS_OF_GPUS.say(workers=spec.workers, gpus=settings.gpus_per_node))
        return spec if spec.gpus else on_whole_nodes(spec, settings.gpus_per_node)
    if spec.gpus:
        raise SpecError(GPUS_OF_WHOLE.say(name=spec.name, least=spec.n_min, most=spec.n_max))
    return spec
