"""Batch normalisation under a framework: what it computes depends on how many samples it sees at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from bftrainer.elastic.frameworks.fixed_batch import Uneven
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.ranks import NORM_SHARES


def watch_batch_norm(model: torch.nn.Module, at_once: Mapping[int, int]) -> None:
    """Tell, before the model first normalises over a batch in training mode, that the samples of it change
    with the nodes.

    Which layers train is known then only: a framework puts a model into training mode in its first step.

    Args:
        model: not yet in its first step.
        at_once: the samples that a rank computes at once, by the number of ranks.
    """
    handles: list[Any] = []

    def first(layer: torch.nn.Module, given: Any) -> None:
        if layer.training and handles:
            for handle in handles:
                handle.remove()
            handles.clear()
            _tell(at_once, is_over_all=isinstance(layer, torch.nn.SyncBatchNorm))

    layers = [each for each in model.modules() if isinstance(each, _BatchNorm)]
    handles += [each.register_forward_pre_hook(first) for each in layers]


def _tell(at_once: Mapping[int, int], *, is_over_all: bool) -> None:
    found = Uneven.of({n: n * own if is_over_all else own for n, own in at_once.items()})
    if found is not None:
        cure = {"cure": "Leave at_most out"} if is_over_all else {}
        note_warning(NORM_SHARES.say(**{**found._asdict(), **cure}))
