"""Gradients that wait for further batches: nodes are not changed meanwhile, as these would be lost."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, MutableMapping
from functools import cache
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.ranks import GRADIENTS_WAIT

MOST = 64
"""Batches for which a change of nodes waits, at most."""

_Stamp = tuple["weakref.ref[torch.Tensor]", int]


class OpenWindows:
    """Knows whether gradients have come that no step of their optimiser has taken: a script accumulates them.

    An optimiser is done with a batch if it was stepped in it, or has no gradients but those of its last step.
    Optimisers are known from their first step on. Before any has stepped, a batch through which gradients
    may flow is one that a script accumulates.
    """

    def __init__(self) -> None:
        self._optimizers = weakref.WeakSet[torch.optim.Optimizer]()
        self._given_up = weakref.WeakSet[torch.optim.Optimizer]()
        self._stepped: set[int] = set()
        self._taken: MutableMapping[torch.Tensor, _Stamp] = WeakIdKeyDictionary()
        self._waited = 0
        self._has_begun = False
        self._node = _next_node()
        self._handle = register_optimizer_step_post_hook(self._after_step)

    def know(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Watch these before their first step, too."""
        self._optimizers.update(optimizers)

    def close(self) -> None:
        """Watch no longer."""
        self._handle.remove()

    def batch_begins(self) -> None:
        """A batch begins: what is stepped from now on is stepped in it."""
        self._stepped.clear()
        if not self._has_begun:
            self._node = _next_node()

    def are_open(self) -> bool:
        """True if a change of nodes must wait for a further batch. After `MOST` of them it stops waiting, and
        tells so."""
        waiting = [each for each in self._optimizers if self._waits(each)]
        is_open = bool(waiting) or (not self._has_begun and _next_node() > self._node + 1)
        self._waited = self._waited + 1 if is_open else 0
        if self._waited <= MOST:
            return is_open
        self._waited, self._has_begun = 0, True
        self._given_up.update(waiting)
        if waiting:
            note_warning(GRADIENTS_WAIT.say(batches=MOST))
        return False

    def _waits(self, optimizer: torch.optim.Optimizer) -> bool:
        if id(optimizer) in self._stepped or optimizer in self._given_up:
            return False
        fresh = (p.grad for p in _parameters(optimizer) if p.grad is not None and self._is_fresh(p, p.grad))
        return any(bool(_own(gradient).any()) for gradient in fresh)

    def _is_fresh(self, parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
        taken, version = self._taken.get(parameter, (None, 0))
        return taken is None or taken() is not gradient or gradient._version != version

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._has_begun = True
        if torch.compiler.is_compiling():
            return
        self._stepped.add(id(optimizer))
        self._optimizers.add(optimizer)
        self._given_up.discard(optimizer)
        for parameter in _parameters(optimizer):
            gradient = parameter.grad
            if gradient is None:
                self._taken.pop(parameter, None)
            else:
                self._taken[parameter] = (weakref.ref(gradient), gradient._version)


@cache
def windows() -> OpenWindows:
    """Those of this process, which are watched from the first call on."""
    return OpenWindows()


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _own(gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part of a gradient: the ranks do not all look at the same time."""
    gradient = getattr(gradient, "_local_tensor", gradient)
    return gradient._values() if gradient.is_sparse else gradient


def _next_node() -> int:
    """The number of the next operation through which gradients may flow: it has grown by more than 1 since
    the last call if the script has computed any."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        one = torch.zeros((), device="cpu", requires_grad=True) * 1
    assert one.grad_fn is not None  # noqa: S101  gradients are on
    return int(one.grad_fn._sequence_nr())
