"""What a script does to this node's gradients before they are averaged, which nothing else would tell of."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from bftrainer.elastic import warned

LOOKED_AT = 16
"""So many parameters of an optimiser are watched: who clips, or scales, changes the gradients of all."""
CHANGED = (
    "the script changes gradients between backward and run.step(). There they are this node's own, of its "
    "share of the samples, so that the step would depend on the number of nodes. To clip their norm, give "
    "elastic.Run(clip_norm=...); else change them in optimizer.register_step_pre_hook(...), which has the "
    "average over all nodes"
)
LEFT = (
    "parameters have gradients from before run.backward(), which are added to the step. If they come from an "
    "attack or a probe in the loop's body, compute that with torch.autograd.grad(...); if from a part of the "
    "loss, add it to the loss that run.backward() gets"
)
HOOKED = (
    "parameters have hooks on their gradients (register_hook). A hook sees this node's own, of its share of "
    "the samples: one that clips, scales or adds noise makes the step depend on the number of nodes. Do that "
    "in optimizer.register_step_pre_hook(...), which has the average over all nodes; to clip their norm, "
    "give elastic.Run(clip_norm=...). A hook that only reads may stay"
)


class OwnGradients:
    """Watches the gradients of a few parameters, from the backward pass that made them to the step.

    Gradients that a script assigns itself (`p.grad = ...`) are not looked at, as it has made them.

    Args:
        is_watching: False where the script averages them, or they are averaged in the backward pass.
        are_averaged: False where the script averages them.
    """

    def __init__(self, *, is_watching: bool, are_averaged: bool = True) -> None:
        self._is_watching, self._are_averaged = is_watching, are_averaged
        self._watched: dict[int, torch.Tensor] = {}
        self._made: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self.on_made: Callable[[torch.Tensor], None] = lambda _: None
        """Called with each parameter that is watched, when a backward pass has made its gradient."""

    def warn_of_hooks(self, parameters: Iterable[torch.Tensor]) -> None:
        """The loop begins: warn if the script has put hooks on the gradients of these."""
        kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
        hooks = [
            hook for p in parameters for kind in kinds for hook in (getattr(p, kind, None) or {}).values()
        ]
        own = OwnGradients  # of an earlier run
        if self._are_averaged and any(not isinstance(getattr(hook, "__self__", None), own) for hook in hooks):
            warned.warn(HOOKED)

    def begin(self, parameters: Iterable[torch.Tensor]) -> None:
        """A step begins, in which these parameters may get gradients."""
        self._made.clear()
        if not self._is_watching:
            return
        trainable = [p for p in parameters if p.requires_grad]
        for p in trainable[:: len(trainable) // LOOKED_AT + 1]:
            if id(p) not in self._watched:
                self._watched[id(p)] = p
                p.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]

    def left(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether a backward pass of this step has left gradients of these parameters behind."""
        return any(self._is_as_made(p) is True for p in parameters)

    def changed(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether gradients have been changed since the backward pass that made them."""
        return any(self._is_as_made(p) is False for p in parameters)

    def _is_as_made(self, parameter: torch.Tensor) -> bool | None:
        gradient, made = parameter.grad, self._made.get(id(parameter))
        if gradient is None or made is None or made[0]() is not gradient:
            return None
        return gradient._version == made[1]

    def _note(self, parameter: Any) -> None:
        gradient = parameter.grad
        if gradient is not None:
            self._made[id(parameter)] = (weakref.ref(gradient), gradient._version)
            self.on_made(parameter)
