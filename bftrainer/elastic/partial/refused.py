"""Runs with which partial back-propagation cannot go together, each with its reason."""

from __future__ import annotations

import torch

from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.policy import Adaptive, Policy
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.partial import ADAPTIVE, COMPILED, NOT_AVERAGED, SEVERAL, SPARSE, WITH_DDP


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
