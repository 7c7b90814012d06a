"""The update by averaged gradients: unscaled, clipped, with the learning rate's present factor."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.train.policy import Pace, StepSize
from bftrainer.elastic.train.schedule import Schedule
from bftrainer.elastic.train.trained import Trained


class Update:
    """Optimisers, schedulers and scaler, stepped together.

    All ranks have the same gradient and the same state, so all make the same update. All skip it, too, if a
    gradient is infinite and the scaler leaves the optimiser's step out.
    """

    def __init__(
        self,
        trained: Trained,
        schedule: Schedule,
        scaler: torch.amp.GradScaler | None,
        clip_norm: float | None,
        policy: StepSize,
    ) -> None:
        self.pace = Pace()
        self.shares: Mapping[int, float] = {}
        """Factors on the learning rates of parameters, by `id`; those that it lacks have 1."""
        self._trained, self._schedule, self._scaler = trained, schedule, scaler
        self._clip_norm, self._policy = clip_norm, policy

    def rescaled(self, nodes: int, step: int) -> None:
        """`nodes` nodes share the samples from `step` on: the learning rate's factor follows."""
        self.pace.turn_to(self._policy.factor(nodes), step, self._policy.warmup_steps)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` on: times the scaler's factor, if there is a scaler."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def clear(self, name: str | None = None) -> None:
        """Clear the gradients of an optimiser's parameters; None: of all."""
        for each in self._trained.optimizers if name is None else (name,):
            self._trained.optimizers[each].zero_grad()

    def take(self, name: str, step: int) -> None:
        """Have an optimiser take the step after `step` others."""
        optimizer = self._trained.optimizers[name]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self._scaler is not None:
            # a rank without a batch has scaled nothing yet, and unscale_ demands it
            self._scaler.scale(torch.zeros((), device=parameters[0].device))
            self._scaler.unscale_(optimizer)
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
        factor = self.pace.factor(step, self._policy.warmup_steps)
        with _paced(optimizer, factor), _shared(optimizer, self.shares):
            if self._scaler is None:
                optimizer.step()
            else:
                self._scaler.step(optimizer)

    def done(self, stepped: Collection[str], *, epoch_over: bool = False, worth: int = 1) -> None:
        """A step of the run is complete, in which these optimisers were stepped; perhaps an epoch's last.

        `worth`: number of steps that it counts as for schedulers that are stepped after each.
        """
        if self._scaler is not None:
            self._scaler.update()
        self._schedule.advance(stepped, epoch_over=epoch_over, worth=worth)


@contextlib.contextmanager
def _paced(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Within, learning rates are multiplied by `factor`; schedulers never see it."""
    groups = [group for group in optimizer.param_groups if "lr" in group]
    own = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, lr in zip(groups, own, strict=True):
            group["lr"] = lr


@contextlib.contextmanager
def _shared(optimizer: torch.optim.Optimizer, shares: Mapping[int, float]) -> Iterator[None]:
    """Within, each parameter group with a learning rate is one for each factor that its parameters have."""
    if not shares:
        yield
        return
    groups, split = optimizer.param_groups, list[tuple[dict[str, Any], dict[str, Any]]]()
    for group in groups:
        parts = dict[float, list[torch.Tensor]]()
        for p in group["params"]:
            parts.setdefault(shares.get(id(p), 1.0) if "lr" in group else 1.0, []).append(p)
        for factor, own in parts.items():
            rate = {"lr": group["lr"] * factor} if "lr" in group else {}
            split.append((group, {**group, **rate, "params": own}))
    optimizer.param_groups = [part for _, part in split]
    try:
        yield
    finally:
        optimizer.param_groups = groups
        for group, part in split:  # some optimisers count in their groups
            group.update({name: value for name, value in part.items() if name not in ("params", "lr")})


def follow(group: Group, optimizer: torch.optim.Optimizer, source: int) -> None:
    """Take over the numbers of an optimiser's parameter groups from rank `source`, on all ranks.

    Raises:
        GroupBroken: a member was lost meanwhile.
    """
    places = list(_places(optimizer))
    numbers = torch.tensor([value for *_, value in places], dtype=torch.float64, device=group.device)
    if not len(numbers):
        return
    group.broadcast(numbers, source)
    for (entries, name, mine), theirs in zip(places, numbers.tolist(), strict=True):
        if theirs != mine:
            entries[name] = int(theirs) if type(mine) is int and theirs.is_integer() else theirs


def _places(optimizer: torch.optim.Optimizer) -> Iterator[tuple[dict[str, float], str, float]]:
    """The numbers, each with where it stands. Pairs, such as betas, are set by schedulers alone."""
    for entries in optimizer.param_groups:
        for name in sorted(entries):
            if type(entries[name]) in (int, float):
                yield entries, name, entries[name]
