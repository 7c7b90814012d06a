"""Finds steps that change nothing, as no parameter has a gradient: the run fails, for it trains nothing."""

from __future__ import annotations

import torch

from bftrainer.elastic.loop.observers import StepObserver, TrainerFails
from bftrainer.elastic.process import warnings
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.loop import IDLE_STEPS

LOOKED_AT = 16
"""Parameters of an optimiser to compare, and elements of each, at most."""
SOON_IDLE, MOST_IDLE = 2, 100
"""Steps without a gradient after which the script is warned, and the run fails."""


class IdleSteps(StepObserver):
    """Counts steps in a row for which no parameter has a gradient, and which change no weight.

    A script without a backward pass takes such steps, and so does one that replays a captured CUDA graph: its
    gradients are in memory of the graph's, and not with the parameters.
    """

    def __init__(self, trained: Trained) -> None:
        self._trained = trained
        self._count = self._taken = 0
        self._before: list[torch.Tensor] = []

    def after_update(self, optimizer: str) -> None:
        groups = self._trained.optimizers[optimizer].param_groups
        parameters: list[torch.Tensor] = [p for group in groups for p in group["params"]]
        self._taken += 1
        if any(p.grad is not None for p in parameters):
            self._count = 0
            return
        every = len(parameters) // LOOKED_AT + 1
        now = [p.detach().reshape(-1)[:LOOKED_AT].clone() for p in parameters[::every]]
        is_same = len(now) == len(self._before) and all(map(torch.equal, now, self._before))
        self._count, self._before = (self._count + 1 if is_same else 1), now
        if self._count == SOON_IDLE:
            warnings.warn(IDLE_STEPS.say(steps=self._count))
        if self._count >= MOST_IDLE:
            raise TrainerFails(IDLE_STEPS.say(steps=self._count))

    def work_ends(self) -> None:
        """Fail if this process has taken such steps alone, and several."""
        if self._count >= SOON_IDLE and self._count == self._taken:
            raise TrainerFails(IDLE_STEPS.say(steps=self._count))
