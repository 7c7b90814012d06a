"""Which rank trains on which samples. Pure arithmetic: every member can compute the share of each.

An epoch is a permutation of the data set, drawn from seed and epoch number; the position in it is
part of the training state that survives every rescale. A step takes the next samples of the
permutation and cuts them into one contiguous share per rank. However the number of ranks changes
from step to step, each sample of an epoch is used exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far training is: steps taken, samples used, and where in which epoch's permutation."""

    step: int = 0
    samples: int = 0
    epoch: int = 0
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of a step: the entries [start, stop) of the epoch's permutation."""

    start: int
    stop: int
    total: int  # samples of the step, over all ranks
    after: Position  # once the step is taken

    @property
    def size(self) -> int:
        """The number of its samples."""
        return self.stop - self.start

    @property
    def weight(self) -> float:
        """What this rank's mean counts in the mean over all samples of the step."""
        return self.size / self.total


def share(
    position: Position, *, rank: int, size: int, batch: int, length: int, budget: int | None = None
) -> Share:
    """The share of `rank` of `size` in the step at `position`.

    A step takes `batch` samples, over all ranks, of a data set of `length`; the last step of an epoch,
    or of a `budget` of samples, is smaller. Shares differ by one sample at most, the first ranks' being
    the larger ones; with fewer samples than ranks, some are empty.
    """
    total = min(batch, length - position.cursor)
    if budget is not None:
        total = min(total, budget - position.samples)
    start, stop = (position.cursor + at for at in _cut(total, size)[rank])
    after = replace(
        position,
        step=position.step + 1,
        samples=position.samples + total,
        cursor=position.cursor + total,
    )
    if after.cursor == length:
        after = replace(after, epoch=after.epoch + 1, cursor=0)
    return Share(start, stop, total, after)


def micro_batches(mine: Share, size: int, at_most: int) -> tuple[tuple[int, int], ...]:
    """The micro-batches [start, stop) into which a rank of `size` cuts its share.

    Each has 1 to `at_most` samples. All ranks have the same number of them, unless a share has fewer samples
    than that.
    """
    largest = -(-mine.total // size)
    count = min(-(-largest // at_most), mine.size)
    return tuple((mine.start + a, mine.start + b) for a, b in _cut(mine.size, count))


def _cut(total: int, parts: int) -> list[tuple[int, int]]:
    """[0, total) in contiguous parts that differ by one at most, the larger ones first."""
    each, rest = divmod(total, parts) if parts else (0, 0)
    ends = [0, *((i + 1) * each + min(i + 1, rest) for i in range(parts))]
    return list(pairwise(ends))
