"""Layers in evaluation mode within a model that trains: a script may put some there while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bftrainer.messages.arguments import LEAST_PER_WORKER

PART = "layers in evaluation mode"
"""The name of its part of the training state; no part of a script can have it."""


class Modes:
    """The layers in evaluation mode, such as frozen batch normalisation; a part of the training state.

    Args:
        models: by name.
        trainer: its number; another trainer that goes on from the checkpoints has its own way, unless its
            script begins with the same layers in evaluation mode.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module], trainer: int) -> None:
        self._models, self._trainer = models, trainer
        self._coming: dict[str, Any] | None = None
        self._began = self._layers()

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state, of the models that are in training mode as a whole."""
        if self._coming is not None:
            return self._coming
        layers = self._layers()
        count = sum(len(each) for each in layers.values())  # a number, as nodes compare numbers
        return {"trainer": str(self._trainer), "count": count, "began": self._began, "layers": layers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the modes when the next turn begins: until then the script may say `model.train()`."""
        is_own = state_dict["trainer"] == str(self._trainer) or state_dict.get("began") == self._began
        self._coming = state_dict if is_own else None

    def _layers(self) -> dict[str, list[str]]:
        return {name: evaluating(model) for name, model in self._models.items() if model.training}

    def begin(self) -> None:
        """A turn of the loop begins."""
        coming, self._coming = self._coming, None
        for name, layers in coming["layers"].items() if coming is not None else ():
            model = self._models.get(name)
            for inner, module in model.named_modules() if model is not None and model.training else ():
                if inner:
                    module.training = inner not in layers


def evaluating(model: torch.nn.Module) -> list[str]:
    """The layers of a model that are in evaluation mode."""
    return [name for name, module in model.named_modules() if not module.training]


def least_of(models: Mapping[str, torch.nn.Module], given: int | None, batch_size: int) -> int:
    """The fewest samples that a worker's share of a step has, if any: what the script gives, or as many as
    batch normalisation needs to have a variance.

    Raises:
        ValueError: `given` is below 1, or above `batch_size`.
    """
    if given is not None:
        if not 1 <= given <= batch_size:
            raise ValueError(LEAST_PER_WORKER.say(given=given, batch_size=batch_size))
        return given
    kind = torch.nn.modules.batchnorm._BatchNorm
    normalises = any(
        isinstance(module, kind) and module.training
        for model in models.values()
        for module in model.modules()
    )
    return min(2 if normalises else 1, batch_size)
