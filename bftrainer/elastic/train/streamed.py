"""Samples that come as a stream (IterableDataset): every node reads it, and takes its share of each step.

The place in the stream belongs to the state, as that in a permutation does. All nodes must see the same
samples in the same order; so a process of its own reads, whose random numbers depend on seed and epoch only.
A node that joins or resumes skips what has been used.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from bftrainer.elastic.members.sockets import open_sockets
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.batches import Batches, IndexedBatches, MicroBatch
from bftrainer.elastic.train.policy import StepSize
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.source import LoaderStart, Source, pinned
from bftrainer.messages.arguments import (
    EPOCHS,
    NO_BATCH_SIZE,
    NO_END,
    OWN_BATCHES,
    STREAM_ENDED,
    TWO_BATCH_SIZES,
)

ENDLESS = 1 << 62
AT_A_TIME = 32
"""Samples that the reading process hands over at once."""


class _From(IterableDataset[bytes]):
    """A data set from sample `skip` on, several samples at a time; read in a process of its own.

    They are pickled: as they are, every tensor would cost the training process a descriptor.
    """

    def __init__(self, data: Any, epoch: int, skip: int) -> None:
        self._data, self._epoch, self._skip = data, epoch, skip

    def __iter__(self) -> Iterator[bytes]:
        data, left = self._data, self._skip
        if hasattr(data, "set_epoch"):
            data.set_epoch(self._epoch)
        if left and hasattr(data, "skip"):
            data, left = data.skip(left), 0
        samples = islice(iter(data), left, None)
        while some := list(islice(samples, AT_A_TIME)):
            yield pickle.dumps(some)


class Reader:
    """The samples of a stream from a place on. `at` is the number of the first one that is kept.

    Raises:
        ValueError: options of a DataLoader, or none, by which batches cannot be cut.
    """

    def __init__(self, data: Any, batch_size: int | None, collate: Any, seed: int) -> None:
        loader = self._loader = data if isinstance(data, DataLoader) else None
        if loader is not None:
            if loader.batch_size is None:
                raise ValueError(OWN_BATCHES.say())
            if batch_size not in (None, loader.batch_size):
                raise ValueError(TWO_BATCH_SIZES.say(batch_size=batch_size, of_loader=loader.batch_size))
            batch_size = loader.batch_size
        if batch_size is None or batch_size < 1:
            raise ValueError(NO_BATCH_SIZE.say(given=batch_size))
        self.batch_size: int = batch_size
        self._data = data if loader is None else loader.dataset
        self._collate = collate or (default_collate if loader is None else loader.collate_fn)
        self._seed, self._before = seed, open_sockets()
        self._epoch, self.at = -1, 0
        self._drops = self.batch_size if loader is not None and loader.drop_last else 1
        self._kept: deque[Any] = deque()
        self._coming: Iterator[bytes] | None = None
        self._is_over = False

    def ahead(self, position: Position, count: int) -> int | None:
        """Have the next `count` samples from `position` on. Returns how many there are where the stream ends
        with them; else None."""
        if (self._epoch, self.at) > (position.epoch, position.cursor) or self._epoch != position.epoch:
            self._begin(position)
        while self.at < position.cursor and (self._kept or self._more()):
            self._kept.popleft()
            self.at += 1
        while len(self._kept) < count + self._drops and self._more():  # as far as to see the end
            pass
        left = (
            len(self._kept) - (self.at + len(self._kept)) % self._drops
        )  # of what is no whole batch, nothing
        return left if self._is_over and left <= count else None

    def batch(self, start: int, stop: int) -> Any:
        """The samples [start, stop) of the epoch, collated."""
        batch = self._collate(list(islice(self._kept, start - self.at, stop - self.at)))
        return pinned(batch) if self._loader is not None and self._loader.pin_memory else batch

    def close(self) -> None:
        """End the reading process."""
        self._coming, self._epoch = None, -1
        self._kept.clear()

    def _begin(self, position: Position) -> None:
        self.close()
        self._epoch, self.at, self._is_over = position.epoch, position.cursor, False
        old = self._loader
        loader = DataLoader(
            _From(self._data, position.epoch, position.cursor),
            batch_size=None,
            num_workers=1,
            collate_fn=bytes,
            generator=torch.Generator().manual_seed(self._seed * 1_000_003 + position.epoch),
            worker_init_fn=LoaderStart(self._before, None if old is None else old.worker_init_fn),
            multiprocessing_context=None if old is None else old.multiprocessing_context,
        )
        self._coming = iter(loader)

    def _more(self) -> bool:
        if self._is_over or self._coming is None:
            return False
        some = next(self._coming, None)
        self._is_over = some is None
        self._kept.extend(pickle.loads(some) if some is not None else ())  # noqa: S301  our own child's
        return not self._is_over


class StreamedBatches(Batches):
    """Batches of a stream, of which only its end tells the length."""

    def __init__(self, reader: Reader, policy: StepSize, **options: Any) -> None:
        super().__init__(reader.batch_size, policy, **options)
        self._reader = reader

    def stop(self) -> None:
        """See `Batches.stop`."""
        self._reader.close()

    def steps(self, nodes: int) -> float | None:
        """See `Batches.steps`: not known."""
        return None

    def share(self, position: Position) -> RankShare:
        """See `Batches.share`.

        Raises:
            ValueError: the stream has ended before this position.
        """
        left = self._reader.ahead(position, self._policy.total(self._size))
        if left == 0:
            raise ValueError(STREAM_ENDED.say(sample=position.cursor, epoch=position.epoch))
        return self._cut(position, ENDLESS if left is None else position.cursor + left)

    def fetch(self, epoch: int, part: MicroBatch) -> Any:
        """See `Batches.fetch`."""
        return self._reader.batch(part.start, part.stop)


def opened(data: Any, batch_size: int | None, collate: Any, seed: int) -> Source | Reader:
    """Open a script's data, with an index or as a stream.

    Raises:
        ValueError, TypeError: data that cannot be shared out over nodes, with what to give instead.
    """
    streams = isinstance(data.dataset if isinstance(data, DataLoader) else data, IterableDataset)
    return (Reader if streams else Source)(data, batch_size, collate, seed)


def batches_of(source: Source | Reader, policy: StepSize, **options: Any) -> Batches:
    """The batches of either, with the options of `Batches`."""
    if isinstance(source, Reader):
        return StreamedBatches(source, policy, **options)
    return IndexedBatches(source, policy, **options)


def passes(epochs: int | None, orders: Orders | None) -> int | None:
    """Number of passes of a run; None: until its samples are done, or the script stops it.

    Raises:
        ValueError: no whole number.
    """
    if epochs is not None and (not isinstance(epochs, int) or epochs < 0):
        raise ValueError(EPOCHS.say(epochs=epochs))
    if epochs is None and orders is None:
        return 1
    if epochs is None and orders is not None and not (orders.samples or orders.progress):
        warnings.warn(NO_END.say())
    return epochs
