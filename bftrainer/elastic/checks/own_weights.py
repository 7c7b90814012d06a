"""Finds changes of weights before their step: if a node is lost in that step, the change stays."""

from __future__ import annotations

import torch

from bftrainer.elastic.checks.own_gradients import OwnGradients
from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process import warnings
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.loop import PERTURBED, WEIGHTS_CHANGED

TURNS = 3
"""Turns of the loop in which weights are checked: a script that does it does so from the beginning."""
LOOKED_AT = 16
"""Parameters, and elements of each, at most."""


class OwnWeights(StepObserver):
    """Looks at a few weights when a turn of the loop begins, and again when its step is to be taken."""

    def __init__(self, trained: Trained, gradients: OwnGradients) -> None:
        self._trained = trained
        gradients.on_made = self.at_backward
        self._left = TURNS
        self._seen: dict[int, torch.Tensor] = {}
        self._frozen: list[torch.Tensor] = []
        self._has_told = False

    def step_begins(self, share: RankShare) -> None:
        self._seen.clear()
        if not self._left:
            return
        self._left -= 1
        there = [p for name in self._trained.optimizers for p in self._trained.parameters(name)]
        every = [p for model in self._trained.models.values() for p in model.parameters()]
        frozen: list[torch.Tensor] = [p for p in every if not p.requires_grad]  # as a momentum encoder's
        self._frozen = frozen[:: len(frozen) // LOOKED_AT + 1]
        for p in (*there[:: len(there) // LOOKED_AT + 1], *self._frozen):
            self._seen[id(p)] = some(p).clone()

    def after_update(self, optimizer: str) -> None:
        if not self._trained.is_several:
            self._seen.clear()  # the turn's weights are of the past: a later run may have the same model
        for p in self._trained.parameters(optimizer) if self._seen else ():
            if id(p) in self._seen:
                self._seen[id(p)] = some(p).clone()

    def at_backward(self, parameter: torch.Tensor) -> None:
        """A parameter gets a gradient in this turn: warn, once, if the script has changed it before."""
        before = None if self._has_told else self._seen.get(id(parameter))
        if before is not None and not torch.equal(before, some(parameter)):
            self._has_told = True
            warnings.warn(PERTURBED.say())

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        """Warn, once, if the script has changed the optimiser's weights."""
        if self._seen and any(
            (before := self._seen.get(id(p))) is not None and not torch.equal(before, some(p))
            for p in (*self._trained.parameters(optimizer), *self._frozen)
        ):
            self._left = 0
            self._seen.clear()
            warnings.warn(WEIGHTS_CHANGED.say())


def some(tensor: torch.Tensor) -> torch.Tensor:
    """A few elements of a tensor, which share its memory."""
    return tensor.detach().reshape(-1)[:LOOKED_AT]
