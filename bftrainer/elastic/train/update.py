"""The update by an averaged gradient: unscaled, clipped, with the learning rate's present factor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from bftrainer.elastic.train.policy import Pace, Policy


class Update:
    """Optimiser, scheduler and scaler, stepped together.

    All ranks have the same gradient and the same state, so all make the same update. All skip it, too, if a
    gradient is infinite and the scaler leaves the optimiser's step out.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        scaler: torch.amp.GradScaler | None,
        clip_norm: float | None,
        policy: Policy,
    ) -> None:
        self.pace = Pace()
        self._optimizer, self._scheduler, self._scaler = optimizer, scheduler, scaler
        self._clip_norm, self._policy = clip_norm, policy

    def rescaled(self, nodes: int, step: int) -> None:
        """From `step` on, `nodes` nodes share the samples: the learning rate's factor follows."""
        self.pace.turn_to(self._policy.factor(nodes), step, self._policy.warmup_steps)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` on: times the scaler's factor, if there is a scaler."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def clear(self) -> None:
        """Clear all gradients."""
        self._optimizer.zero_grad()

    def take(self, step: int) -> None:
        """Take the step after `step` others."""
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        if self._scaler is not None:
            # a rank without a batch has scaled nothing yet, and unscale_ demands it
            self._scaler.scale(torch.zeros((), device=parameters[0].device))
            self._scaler.unscale_(self._optimizer)
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
        with self._paced(self.pace.factor(step, self._policy.warmup_steps)):
            if self._scaler is None:
                self._optimizer.step()
            else:
                self._scaler.step(self._optimizer)
                self._scaler.update()
        if self._scheduler is not None:
            self._scheduler.step()

    @contextlib.contextmanager
    def _paced(self, factor: float) -> Iterator[None]:
        """Within, learning rates are multiplied by `factor`; schedulers never see it."""
        groups = self._optimizer.param_groups
        own = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * factor
        try:
            yield
        finally:
            for group, lr in zip(groups, own, strict=True):
                group["lr"] = lr
