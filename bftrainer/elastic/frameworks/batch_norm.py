"""Batch normalisation under a framework: what it computes depends on how many samples it sees at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.ranks import NORM_SHARES

LEAST = 2
"""Fewer samples have no variance to divide by."""


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
    samples = {n: n * own if is_over_all else own for n, own in at_once.items()}
    few, many = min(samples.values(), default=0), max(samples.values(), default=0)
    if few == many:
        return
    common = math.gcd(*samples.values())
    if is_over_all:
        cure = "Leave at_most out"
    elif common >= LEAST:
        cure = f"Say at_most={common}, so that all are of one size"
    else:
        cure = "Take a batch whose shares have a common divisor, and say at_most=..."
    ranks = {count: n for n, count in samples.items()}
    note_warning(NORM_SHARES.say(few=few, fewest=ranks[few], many=many, most=ranks[many], cure=cure))
