"""A batch sampler whose steps have the same samples on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bftrainer.elastic.frameworks.fixed_batch import Cut
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.messages.ranks import DATA_READ_EARLY


class EvenBatches:
    """One rank's micro-batches of an epoch; for a DataLoader's `batch_sampler`.

    A step takes `total` samples over all ranks: the next ones of the epoch's order, which follows from seed
    and epoch alone. What is left of an epoch in the end, less than a step, is left out of it.

    Args:
        length: the samples of the data set.
        total: those of a step.
        cut: a rank's share of it.
        rank: the number of this rank.
        shuffle: whether every epoch has an order of its own.
        seed: of these orders.
    """

    def __init__(self, length: int, total: int, cut: Cut, rank: int, *, shuffle: bool, seed: int) -> None:
        self._length, self._total, self._cut, self._rank = length, total, cut, rank
        self._shuffle, self._seed = shuffle, seed
        self._epoch = self._first = 0
        self._begun = False
        self.sampler = self
        """Attribute in which frameworks look for `set_epoch`."""

    @property
    def steps(self) -> int:
        """The steps of an epoch."""
        return self._length // self._total

    def set_epoch(self, epoch: int) -> None:
        """Take this epoch's order, from the next iteration on."""
        self._epoch = epoch

    def go_on(self, epoch: int, step: int) -> None:
        """Have the next iteration begin at this step of this epoch; those after it begin at their start.

        Raises:
            RefusedError: one has begun: its first batches are another epoch's.
        """
        if self._begun:
            raise RefusedError(DATA_READ_EARLY.say())
        self._epoch, self._first = epoch, step

    def __len__(self) -> int:
        """The micro-batches of a whole epoch."""
        return self.steps * self._cut.micro_batches

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the numbers of the samples of each micro-batch."""
        self._begun = True
        first, self._first = self._first, 0
        order = torch.arange(self._length)
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed + self._epoch)
            order = torch.randperm(self._length, generator=generator)
        share = self._cut.samples * self._cut.micro_batches
        for step in range(first, self.steps):
            begin = step * self._total + self._rank * share
            for part in range(begin, begin + share, self._cut.samples):
                yield order[part : part + self._cut.samples].tolist()
