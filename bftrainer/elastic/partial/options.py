"""The options of partial back-propagation, as a script or a spec gives them, and the runs with which they
cannot go together. Experimental."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.policy import Adaptive, Policy
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.partial import (
    ADAPTIVE,
    BY,
    COMPILED,
    NO_OPTIONS,
    NOT_AVERAGED,
    RATE,
    SEVERAL,
    SPARSE,
    WARM_UP,
    WITH_DDP,
)

SHARES, RATES = ("time", "modules"), ("share", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Worker j of k computes the gradients of the last j/k of the model only (structured partial
    back-propagation, Kumar et al. 2021, section 2). Roles go round with every step. Experimental.

    Args:
        by: what the model is divided by: "time" of the measured backward pass, or "modules", their number. A
            list of modules' names, such as ["layer3", "layer4"], has each begin a part that counts alike.
        lr: "share" as in the paper: a parameter's learning rate is multiplied by the share of the samples
            that gave its gradient; "none": it stays.
        warmup_steps: first steps of the run, in which all workers compute all gradients.
        warmup_epochs: the same, in epochs. The longer of both counts.

    Raises:
        ValueError: an option that is none.
    """

    by: str | Sequence[str] = "time"
    lr: str = "share"
    warmup_steps: int = 0
    warmup_epochs: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            is_known = self.by in SHARES
        else:
            is_known = bool(self.by) and all(isinstance(name, str) and name for name in self.by)
        if not is_known:
            raise ValueError(BY.say(by=self.by))
        if not isinstance(self.by, str):
            object.__setattr__(self, "by", tuple(self.by))
        if self.lr not in RATES:
            raise ValueError(RATE.say(lr=self.lr))
        for name in ("warmup_steps", "warmup_epochs"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(WARM_UP.say(name=name, value=value))


def overridden(given: Partial | None, spec: Mapping[str, Any]) -> Partial | None:
    """A script's options, overridden by a spec's key `partial`: empty, it says nothing; {"off": True} leaves
    partial back-propagation out; {"off": False} has it, and other keys are options in place of the script's.

    Raises:
        TypeError: what the script gives is no `Partial`.
    """
    if given is not None and not isinstance(given, Partial):
        raise TypeError(NO_OPTIONS.say(given=given))
    if not spec:
        return given
    if spec.get("off"):
        return None
    return replace(given or Partial(), **{name: value for name, value in spec.items() if name != "off"})


def check_partial(trained: Trained, policy: Policy, averaging: Averaging) -> None:
    """Refuse a run in which gradients cannot be averaged over those who have computed them.

    Raises:
        ValueError: the first reason, with what to do instead.
    """
    if isinstance(policy, Adaptive):
        raise ValueError(ADAPTIVE.say())
    if averaging.overlaps:
        raise ValueError(WITH_DDP.say())
    if not averaging.averages:
        raise ValueError(NOT_AVERAGED.say())
    if trained.is_several:
        raise ValueError(SEVERAL.say())
    for model in trained.models.values():
        for name, module in model.named_modules():
            if type(module).__name__ == "OptimizedModule":
                raise ValueError(COMPILED.say())
            if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
                raise ValueError(SPARSE.say(name=name))
