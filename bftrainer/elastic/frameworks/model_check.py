"""Checks of a script's own model under a framework: refuses steps that would depend on the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import torch

from bftrainer.elastic.checks.own_weights import some
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.train.modes import evaluating
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.ranks import CHECKPOINT_LACKS, FROZEN_LATER, ROUNDED

NARROW = (torch.float32, torch.bfloat16, torch.float16)
"""Types that a model may be made in before a framework converts it."""


class AsAtStart:
    """Attributes of a model that must stay as at the start of a process, as no checkpoint has them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._frozen = _frozen(model)
        self._evaluating: list[str] | None = None  # from when the model first trains

    def check_frozen(self, model: torch.nn.Module) -> None:
        """Refuse layers that are frozen or unfrozen while a script trains.

        Raises:
            RefusedError: the first of them, and what to do instead.
        """
        modes = evaluating(model)
        before = modes if self._evaluating is None else self._evaluating
        if model.training:
            self._evaluating = before
        changed = sorted(_frozen(model) ^ self._frozen)
        changed += sorted({*modes} ^ {*before}) if model.training else []
        if changed:
            raise RefusedError(FROZEN_LATER.say(first=changed[0], more=len(changed) - 1))


def check_names(names: Set[str], model: torch.nn.Module) -> None:
    """Refuse a checkpoint with these weights that lacks some of those that train; others may be left out on
    purpose.

    Raises:
        RefusedError: how many, the first, and what to do instead.
    """
    same: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        if value.requires_grad:
            same.setdefault(id(value), []).append(name)
    lacks = [own[0] for own in same.values() if not names & set(own)]
    if lacks and len(lacks) < len(same):  # all: they have other names altogether, such as a wrapper's
        raise RefusedError(CHECKPOINT_LACKS.say(count=len(lacks), all=len(same), name=lacks[0]))


class Restored:
    """A few elements of each weight in a checkpoint, which the model has when the training goes on.

    Args:
        state: tensors by the names of the model's parameters; other values are left out.
        changed: message on a weight that the framework's own functions have changed since.
    """

    def __init__(self, state: Mapping[str, Any], changed: Diagnostic) -> None:
        self._changed = changed
        self._some = {
            name: some(value).cpu().clone() for name, value in state.items() if torch.is_tensor(value)
        }

    def check_complete(self, model: torch.nn.Module) -> None:
        """See `check_names`."""
        check_names(self._some.keys(), model)

    def check_unchanged(self, model: torch.nn.Module) -> None:
        """Refuse a model that has been changed since it was restored.

        Raises:
            RefusedError: the first weight that differs, and what to do instead.
        """
        for name, value in model.named_parameters():
            before = self._some.get(name)
            is_whole = type(value) in (torch.Tensor, torch.nn.Parameter)  # and not a node's part of it
            if before is None or before.dtype != value.dtype:
                continue
            if not is_whole or torch.equal(before, now := some(value).cpu()):
                continue
            if narrow := [each for each in NARROW if torch.equal(before.to(each).to(now.dtype), now)]:
                raise RefusedError(ROUNDED.say(name=name, narrow=narrow[0], wide=now.dtype))
            raise RefusedError(self._changed.say(name=name))


def _frozen(model: torch.nn.Module) -> frozenset[str]:
    return frozenset(name for name, p in model.named_parameters() if not p.requires_grad)
