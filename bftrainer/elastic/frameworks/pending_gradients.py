"""Gradients that wait for further batches: nodes are not changed meanwhile, as these would be lost."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.ranks import GRADIENTS_WAIT

MOST = 64
"""A change of nodes waits for so many batches at most."""

_Stamp = tuple["weakref.ref[torch.Tensor]", int]


class OpenWindows:
    """Knows whether gradients have come that no step of their optimiser has taken: a script accumulates them.

    An optimiser is done with a batch if it was stepped in it, or has no gradients but those of its last step.
    """

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._optimizers = list(optimizers)
        self._stepped: set[int] = set()
        self._taken: dict[torch.Tensor, _Stamp] = {}
        self._handles = [each.register_step_post_hook(self._after_step) for each in self._optimizers]
        self._waited = 0

    def close(self) -> None:
        """Watch no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def batch_begins(self) -> None:
        """A batch begins: what is stepped from now on is stepped in it."""
        self._stepped.clear()

    def are_open(self) -> bool:
        """Whether a change of nodes has to wait for a further batch. After `MOST` of them it waits no more,
        and tells so."""
        is_open = any(self._waits(each) for each in self._optimizers)
        self._waited = self._waited + 1 if is_open else 0
        if self._waited <= MOST:
            return is_open
        self._waited = 0
        note_warning(GRADIENTS_WAIT.say(batches=MOST))
        return False

    def _waits(self, optimizer: torch.optim.Optimizer) -> bool:
        if id(optimizer) in self._stepped:
            return False
        fresh = (p.grad for p in _parameters(optimizer) if p.grad is not None and self._is_fresh(p, p.grad))
        return any(bool(gradient.any()) for gradient in fresh)

    def _is_fresh(self, parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
        taken, version = self._taken.get(parameter, (None, 0))
        return taken is None or taken() is not gradient or gradient._version != version

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepped.add(id(optimizer))
        for parameter in _parameters(optimizer):
            gradient = parameter.grad
            if gradient is None:
                self._taken.pop(parameter, None)
            else:
                self._taken[parameter] = (weakref.ref(gradient), gradient._version)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
