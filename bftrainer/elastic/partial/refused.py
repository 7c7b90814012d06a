"""Runs with which partial back-propagation cannot go together, each with its reason."""

from __future__ import annotations

import torch

from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.policy import Adaptive, Policy
from bftrainer.elastic.train.trained import Trained


def check_partial(trained: Trained, policy: Policy, averaging: Averaging) -> None:
    """Refuse a run in which gradients cannot be averaged over those who have computed them.

    Raises:
        ValueError: the first reason, with what to do instead.
    """
    if isinstance(policy, Adaptive):
        raise ValueError(
            "partial with elastic.Adaptive: the gradient's noise is what full gradients of workers differ "
            "by, and partial ones do not tell it; take elastic.FixedGlobal or FixedPerNode, or leave it out"
        )
    if averaging.overlaps:
        raise ValueError(
            "partial with ddp: DistributedDataParallel exchanges all parameters, in buckets that are fixed "
            "when the run begins, and divides by all workers; leave ddp out"
        )
    if not averaging.averages:
        raise ValueError("partial with average=False: the run has to average; leave average=False out")
    if trained.is_several:
        raise ValueError(
            "partial with several optimizers: the backward passes of one turn have no common order; leave "
            "partial out"
        )
    for model in trained.models.values():
        for name, module in model.named_modules():
            if type(module).__name__ == "OptimizedModule":
                raise ValueError(
                    "partial with torch.compile: a compiled backward pass completes all gradients at its "
                    "end; give the model as it is"
                )
            if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
                raise ValueError(
                    f"partial: the embedding {name!r} has sparse gradients, which travel whole; leave "
                    "sparse=True out"
                )
