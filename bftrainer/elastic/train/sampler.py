"""Divides each step's samples between the ranks. Pure: every member can compute the share of each.

An epoch is a permutation of the data set, drawn from seed and epoch number; the position in it is
part of the training state that survives every rescale. A step takes the next samples of the
permutation and cuts them into one contiguous share per rank. However the number of ranks changes
from step to step, each sample of an epoch is used exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from bftrainer.elastic.state.position import Position


@dataclass(frozen=True, slots=True)
class RankShare:
    """One rank's part of a step: the entries [start, stop) of the epoch's permutation."""

    start: int
    stop: int
    total: int  # samples of the step, over all ranks
    after: Position  # once the step is taken
    ranks: int  # number of ranks with samples, the first ones

    @property
    def size(self) -> int:
        """The number of its samples."""
        return self.stop - self.start

    @property
    def weight(self) -> float:
        """Weight of this rank's mean in the mean over all samples of the step."""
        return self.size / self.total


def share(
    position: Position,
    *,
    rank: int,
    size: int,
    batch: int,
    length: int,
    budget: int | None = None,
    least: int = 1,
) -> RankShare:
    """The share of `rank` of `size` in the step at `position`.

    A step takes `batch` samples, over all ranks, of a data set of `length`; the last step of an epoch,
    or of a `budget` of samples, is smaller. Shares differ by one sample at most, the first ranks' being
    the larger ones. With fewer samples than `least` for each rank, the first ranks share them alone, and the
    others' shares are empty; no share is smaller than `least`, unless the whole step is.
    """
    total = min(batch, length - position.cursor)
    if budget is not None:
        total = min(total, budget - position.samples)
    ranks = max(1, min(size, total // least))
    cuts = [*_cut(total, ranks), *[(total, total)] * (size - ranks)]
    start, stop = (position.cursor + at for at in cuts[rank])
    after = replace(
        position,
        step=position.step + 1,
        samples=position.samples + total,
        cursor=position.cursor + total,
    )
    if after.cursor == length:
        after = replace(after, epoch=after.epoch + 1, cursor=0)
    return RankShare(start, stop, total, after, ranks)


def micro_batches(mine: RankShare, at_most: int, least: int = 1) -> tuple[tuple[int, int], ...]:
    """The micro-batches [start, stop) into which a rank cuts its share.

    Each has `least` to `at_most` samples, or more where no number of micro-batches is between. All ranks have
    the same number of them, unless a share has too few samples for that.
    """
    largest = -(-mine.total // mine.ranks)
    count = min(-(-largest // at_most), max(mine.size // least, min(mine.size, 1)))
    return tuple((mine.start + a, mine.start + b) for a, b in _cut(mine.size, count))


def _cut(total: int, parts: int) -> list[tuple[int, int]]:
    """[0, total) in contiguous parts that differ by one at most, the larger ones first."""
    each, rest = divmod(total, parts) if parts else (0, 0)
    ends = [0, *((i + 1) * each + min(i + 1, rest) for i in range(parts))]
    return list(pairwise(ends))
