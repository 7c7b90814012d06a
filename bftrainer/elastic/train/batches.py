"""This rank's samples, step by step, cut into micro-batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.policy import StepSize
from bftrainer.elastic.train.sampler import RankShare, micro_batches, share
from bftrainer.elastic.train.source import Source


@dataclass(slots=True)
class MicroBatch:
    """A part [start, stop) of a share, on which the script works at one time.

    The mean of its losses counts `weight` in the mean of the share.
    """

    start: int
    stop: int
    weight: float
    first: bool
    last: bool
    went_backward: bool = field(default=False, init=False)


class Batches(ABC):
    """This rank's part of every step, from the position that training has reached.

    Args:
        batch_size: the most samples that a node computes at once.
        policy: samples per step.
        epochs: passes until nothing is left; None: passes do not count.
        budget: samples until nothing is left; None: samples do not count.
        goal: steps until nothing is left, by their worth; None: they do not count.
        stand_in: whether a rank without samples works on a stand-in, of weight 0.
        least: a rank has no fewer samples of a step, or none.
    """

    def __init__(
        self,
        batch_size: int,
        policy: StepSize,
        *,
        epochs: int | None,
        budget: int | None,
        stand_in: bool,
        least: int = 1,
        goal: float | None = None,
    ) -> None:
        self._goal = goal
        self.batch_size, self._policy, self._least = batch_size, policy, least
        self._epochs, self._budget, self._stand_in = epochs, budget, stand_in
        self._place: int | None = 0
        self._size = 1

    def enter(self, position: Position, place: int | None, size: int) -> None:
        """Make this rank number `place` of `size` that share the samples from `position` on.

        None as `place`: this rank takes no samples.
        """
        self._place, self._size = place, size

    @abstractmethod
    def stop(self) -> None:
        """End processes that read or fetch ahead."""

    @property
    def total(self) -> int:
        """The samples of a step that is not an epoch's last, over all ranks."""
        return self._policy.total(self._size)

    @property
    def epochs(self) -> float | None:
        """The passes over the data that the whole run makes; None: not known."""
        return self._epochs

    @property
    def samples(self) -> int | None:
        """The samples of the whole run; None: not known."""
        return self._budget

    @abstractmethod
    def steps(self, nodes: int) -> float | None:
        """The steps of the whole run on `nodes` nodes; None if unknown."""

    def left(self, position: Position) -> int | None:
        """The micro-batches that this rank has yet to work on, with as many ranks; None: not known."""
        return None

    def complete(self, position: Position) -> bool:
        """True if nothing is left to train on at `position`."""
        return (
            (self._budget is not None and position.samples >= self._budget)
            or (self._epochs is not None and position.epoch >= self._epochs)
            or self._has_come_to_goal(position)
        )

    def _has_come_to_goal(self, position: Position) -> bool:
        return self._goal is not None and position.progress >= self._goal

    def whole(self, position: Position) -> int | None:
        """The samples of the whole run as far as is known at `position`: towards a goal, each is taken to be
        worth what those before were."""
        if self._goal is None:
            return self.samples
        towards = math.ceil(position.samples * self._goal / position.progress) if position.step else None
        return min((count for count in (towards, self.samples) if count is not None), default=None)

    @abstractmethod
    def share(self, position: Position) -> RankShare:
        """This rank's share of the step at `position`; an empty one if it takes no samples."""

    def _cut(self, position: Position, length: int) -> RankShare:
        """The share of an epoch of `length` samples."""
        found = share(
            position,
            rank=self._place or 0,
            size=self._size,
            batch=self._policy.total(self._size),
            length=length,
            budget=self._budget,
            least=self._least,
        )
        return found if self._place is not None else replace(found, stop=found.start)

    def parts(self, mine: RankShare) -> list[MicroBatch]:
        """The micro-batches of a share, in order; the stand-in is the step's last samples."""
        cuts = micro_batches(mine, self.batch_size, self._least)
        if not cuts and self._stand_in:
            cuts = ((mine.start - min(self._least, mine.total), mine.start),)
        return [
            MicroBatch(
                start,
                stop,
                weight=(stop - start) / (mine.size or stop - start),
                first=start == cuts[0][0],
                last=stop == cuts[-1][1],
            )
            for start, stop in cuts
        ]

    @abstractmethod
    def fetch(self, epoch: int, part: MicroBatch) -> Any:
        """The samples of a micro-batch, collated. Every micro-batch must be fetched, in order."""


class IndexedBatches(Batches):
    """Batches of a data set with an index: an epoch is a permutation of it."""

    def __init__(self, source: Source, policy: StepSize, **options: Any) -> None:
        super().__init__(source.batch_size, policy, **options)
        self._source = source
        self._ahead: Iterator[Any] | None = None
        self._fetched = 0  # the epoch that worker processes fetch, or the first one
        self._position = Position()

    def enter(self, position: Position, place: int | None, size: int) -> None:
        """See `Batches.enter`. Worker processes, if any, start fetching again."""
        super().enter(position, place, size)
        self._position, self._ahead = position, None
        if self._source.ahead and place is not None:
            self._begin_ahead()

    def _begin_ahead(self) -> None:
        """Worker processes begin to fetch at the present step. They see the data set as it is now, and last
        to the end of the epoch. Persistent ones would see it as it was at the last change of nodes."""
        self._fetched = self._position.epoch
        self._ahead = self._source.stream(self._coming(self._position))

    def stop(self) -> None:
        """See `Batches.stop`."""
        self._ahead = None

    @property
    def epochs(self) -> float | None:
        """See `Batches.epochs`."""
        by_budget = None if self._budget is None else self._budget / self._source.length
        known = [count for count in (self._epochs, by_budget) if count is not None]
        return min(known, default=None)

    @property
    def samples(self) -> int | None:
        """See `Batches.samples`."""
        by_epochs = None if self._epochs is None else self._epochs * self._source.length
        return min((count for count in (by_epochs, self._budget) if count is not None), default=None)

    def steps(self, nodes: int) -> float | None:
        """See `Batches.steps`."""
        each = math.ceil(self._source.length / self._policy.total(nodes))
        return None if self.epochs is None else self.epochs * each

    def left(self, position: Position) -> int | None:
        """See `Batches.left`."""
        if self.samples is None:
            return None
        length, left = self._source.length, max(0, self.samples - position.samples)
        here = min(left, length - position.cursor)
        epochs, last = divmod(left - here, length)
        return self._count(here) + epochs * self._count(length) + self._count(last)

    def _count(self, samples: int) -> int:
        """The micro-batches of this rank in `samples` samples of one epoch: all full steps have as many."""
        steps, rest = divmod(samples, self._policy.total(self._size))
        each, last = (
            len(self.parts(self._cut(Position(), total))) if total else 0
            for total in (self._policy.total(self._size) if steps else 0, rest)
        )
        return steps * each + last

    def share(self, position: Position) -> RankShare:
        """See `Batches.share`."""
        self._position = position
        return self._cut(position, self._source.length)

    def fetch(self, epoch: int, part: MicroBatch) -> Any:
        """See `Batches.fetch`."""
        if self._ahead is not None:
            if epoch != self._fetched:
                self._begin_ahead()
            return next(self._ahead)
        return self._source.fetch(self._source.indices(epoch, part.start, part.stop))

    def _coming(self, position: Position) -> Iterator[list[int]]:
        """The indices of the epoch's micro-batches from here on, as long as members stay the same."""
        epoch = position.epoch
        while not self.complete(position) and position.epoch == epoch:
            mine = self._cut(position, self._source.length)
            for part in self.parts(mine):
                yield self._source.indices(position.epoch, part.start, part.stop)
            position = mine.after
