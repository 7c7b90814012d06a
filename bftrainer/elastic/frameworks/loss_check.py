"""Losses under a framework that are no mean over samples: results then depend on the number of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bftrainer.elastic.checks.loss_shares import LossTerms
from bftrainer.elastic.frameworks.fixed_batch import Uneven
from bftrainer.elastic.process.warnings import note_warning

BACKWARD = "backward"


def watch_losses(of: Any, at_once: Mapping[int, int], samples: Callable[[], int]) -> None:
    """Look at each loss that `of.backward` gets, and tell once where it depends on how samples are cut.

    Args:
        of: what a framework calls, such as a LightningModule or an Accelerator; `forget_losses` undoes it.
        at_once: the samples that a rank computes at once, by the number of ranks.
        samples: how many this loss is of; 0: it is to be left out.
    """
    if Uneven.of(at_once) is None:
        return
    losses, own, is_told = LossTerms(), getattr(of, BACKWARD), False

    def backward(loss: Any, *given: Any, **options: Any) -> Any:
        nonlocal is_told
        if not is_told and isinstance(loss, torch.Tensor) and (said := losses.look(loss, samples())):
            is_told = True
            note_warning(said)
        return own(loss, *given, **options)

    setattr(of, BACKWARD, backward)


def forget_losses(of: Any) -> None:
    """Look at its losses no more; an object that keeps a function of ours could not be pickled."""
    if getattr(vars(of).get(BACKWARD), "__module__", "") == __name__:
        delattr(of, BACKWARD)
