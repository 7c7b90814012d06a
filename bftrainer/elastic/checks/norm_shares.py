"""Finds batch normalisation that sees as many samples at once as nodes leave it: other weights come out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process import warnings
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train import sampler
from bftrainer.elastic.train.policy import FixedGlobal, Policy
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.ranks import NORM_SHARES

MOST_SIZES = 64
"""Numbers of ranks to check, at most."""


class NormShares(StepObserver):
    """Warns, when the loop begins, of micro-batches of several sizes if a model's batch normalisation trains.

    Args:
        ranks: the numbers of ranks that may share a step's samples.
        at_most: the samples that a rank computes at once at most.
        least: of a share.
    """

    def __init__(
        self, trained: Trained, policy: Policy, ranks: Sequence[int], *, at_most: int, least: int
    ) -> None:
        self._trained, self._told = trained, False
        self._sizes: dict[int, set[int]] = {}
        if isinstance(policy, FixedGlobal):  # with others a rank has as many, however many ranks there are
            batch = policy.batch
            self._sizes = {n: set(at_once(batch, n, at_most, least)) for n in islice(ranks, MOST_SIZES)}

    def loop_begins(self) -> None:
        """Warn, once."""
        few, fewest = min(((min(own), n) for n, own in self._sizes.items()), default=(0, 0))
        many, most = max(((max(own), -n) for n, own in self._sizes.items()), default=(0, 0))
        if few == many or self._told or not any(map(_normalises, self._trained.models.values())):
            return
        self._told = True
        common = math.gcd(*(size for own in self._sizes.values() for size in own))
        cure = f"Give elastic.Run batch_size={common}, so that all are of one size"
        if common == 1:
            cure = "Take a batch whose shares have a common divisor, and that as batch_size"
        warnings.warn(NORM_SHARES.say(few=few, fewest=fewest, many=many, most=-most, cure=cure))


def at_once(batch: int, ranks: int, at_most: int, least: int) -> Iterator[int]:
    """Samples that the first and the last rank with samples compute at once in a whole step."""
    first = sampler.share(Position(), rank=0, size=ranks, batch=batch, length=batch, least=least)
    for rank in {0, first.ranks - 1}:
        mine = sampler.share(Position(), rank=rank, size=ranks, batch=batch, length=batch, least=least)
        yield from (stop - start for start, stop in sampler.micro_batches(mine, at_most, least))


def _normalises(model: torch.nn.Module) -> bool:
    """True if a layer of a model computes its statistics from this rank's samples alone."""
    over_all = torch.nn.SyncBatchNorm
    return any(
        each.training and isinstance(each, _BatchNorm) and not isinstance(each, over_all)
        for each in model.modules()
    )
