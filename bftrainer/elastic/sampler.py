"""Who trains on which samples. Pure arithmetic, so that every member knows everybody's share.

An epoch is a permutation of the data set, drawn from seed and epoch number; the position in it is
part of the training state that survives every rescale. A step takes the next samples of the
permutation and cuts them into one contiguous share per rank. However the number of ranks changes
from step to step, each sample of an epoch is used exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far training is: steps taken, samples used, and where in which epoch's permutation."""

    step: int = 0
    samples: int = 0
    epoch: int = 0
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of a step: the permutation's entries [start, stop) of `total` used by all ranks."""

    start: int
    stop: int
    total: int
    after: Position

    @property
    def size(self) -> int:
        return self.stop - self.start


def share(
    position: Position, *, rank: int, size: int, batch: int, length: int, budget: int | None = None
) -> Share:
    """The share of `rank` of `size` in the step at `position`.

    `batch` samples per rank of a data set of `length`; the last step of an epoch, or of a `budget` of
    samples, is smaller and shared out evenly, the first ranks taking one more where it does not divide.
    """
    total = min(size * batch, length - position.cursor)
    if budget is not None:
        total = min(total, budget - position.samples)
    each, rest = divmod(total, size)
    start = position.cursor + rank * each + min(rank, rest)
    stop = start + each + (rank < rest)
    after = replace(
        position,
        step=position.step + 1,
        samples=position.samples + total,
        cursor=position.cursor + total,
    )
    if after.cursor == length:
        after = replace(after, epoch=after.epoch + 1, cursor=0)
    return Share(start, stop, total, after)
