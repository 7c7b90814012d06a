"""Finds changes that a script makes to this node's gradients before they are averaged."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process import warnings
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.loop import GRADIENT_HOOKS, GRADIENTS_CHANGED, GRADIENTS_LEFT

LOOKED_AT = 16
"""Parameters of an optimiser to watch: clipping, or scaling, changes the gradients of all."""
ALWAYS, SELDOM = 100, 10
"""First steps to watch, and then one step in this many: hooks take 0.1 ms a step."""


class OwnGradients(StepObserver):
    """Watches the gradients of a few parameters, from the backward pass that made them to the step.

    Gradients that a script assigns itself (`p.grad = ...`) are not looked at, as it has made them.

    Args:
        is_watching: False where the script averages them, or they are averaged in the backward pass.
        are_averaged: False where the script averages them.
    """

    def __init__(self, trained: Trained, *, is_watching: bool, are_averaged: bool = True) -> None:
        self._trained, self._is_watching, self._are_averaged = trained, is_watching, are_averaged
        self._steps = 0
        self._watched: dict[int, tuple[torch.Tensor, Any]] = {}  # a parameter, and what removes its hook
        self._made: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self.on_made: Callable[[torch.Tensor], None] = lambda _: None
        """Called with each parameter that is watched, when a backward pass has made its gradient."""

    def loop_begins(self) -> None:
        """Warn if the script has put hooks on gradients."""
        kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
        every = list(self._stepped())
        hooks = [hook for p in every for kind in kinds for hook in (getattr(p, kind, None) or {}).values()]
        own = OwnGradients  # of an earlier run
        if self._are_averaged and any(not isinstance(getattr(hook, "__self__", None), own) for hook in hooks):
            warnings.warn(GRADIENT_HOOKS.say())

    def step_begins(self, share: RankShare) -> None:
        self._made.clear()
        if not self._is_watching:
            return
        self._steps += 1
        if self._steps > ALWAYS and self._steps % SELDOM:
            for _, hook in self._watched.values():
                hook.remove()
            self._watched.clear()
            return
        trainable = [p for p in self._stepped() if p.requires_grad]
        for p in trainable[:: len(trainable) // LOOKED_AT + 1]:
            if id(p) not in self._watched:
                hook = p.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
                self._watched[id(p)] = p, hook

    def before_backward(self, optimizer: str, part: MicroBatch, loss: torch.Tensor) -> None:
        if part.first and not part.went_backward and self.left(self._trained.among(optimizer)):
            if not part.last:
                raise RuntimeError(GRADIENTS_LEFT.say())
            warnings.warn(GRADIENTS_LEFT.say())

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        if self.changed(self._trained.among(optimizer)):
            raise RuntimeError(GRADIENTS_CHANGED.say())

    def left(self, parameters: Sequence[torch.Tensor] | None = None) -> bool:
        """True if a backward pass of this step left gradients of `parameters` (None: any) behind."""
        return True in self._as_made(parameters)

    def changed(self, parameters: Sequence[torch.Tensor] | None = None) -> bool:
        """True if gradients have been changed since the backward pass that made them."""
        return False in self._as_made(parameters)

    def _stepped(self) -> Iterator[torch.Tensor]:
        return (p for name in self._trained.optimizers for p in self._trained.parameters(name))

    def _as_made(self, parameters: Sequence[torch.Tensor] | None) -> Iterator[bool]:
        """For each watched one with a backward pass's gradient: whether that is unchanged."""
        among = None if parameters is None or not self._made else {id(p) for p in parameters}
        for number, (made, version) in self._made.items():
            gradient = self._watched[number][0].grad
            if (among is None or number in among) and gradient is not None and made() is gradient:
                yield gradient._version == version

    def _note(self, parameter: Any) -> None:
        gradient = parameter.grad
        if gradient is not None:
            self._made[id(parameter)] = (weakref.ref(gradient), gradient._version)
            self.on_made(parameter)
