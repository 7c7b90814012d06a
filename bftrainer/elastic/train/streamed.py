"""Samples that come as a stream (IterableDataset): every node reads it, and takes its share of each step.

The place in the stream belongs to the state, as that in a permutation does. All nodes have to see the same
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

from bftrainer.elastic import warned
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.sockets import open_sockets
from bftrainer.elastic.train.batches import Batches, IndexedBatches, MicroBatch
from bftrainer.elastic.train.data import Source, Start, pinned
from bftrainer.elastic.train.own_random import warn_of_generators
from bftrainer.elastic.train.policy import Policy
from bftrainer.elastic.train.sampler import Position, Share

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
            if loader.drop_last or loader.batch_size is None:
                wrong = "drop_last" if loader.drop_last else "batch_size None"
                raise ValueError(f"the run cuts batches itself: leave {wrong} out of the DataLoader")
            if batch_size not in (None, loader.batch_size):
                raise ValueError(
                    f"batch_size {batch_size}, but the DataLoader has {loader.batch_size}: give one"
                )
            batch_size = loader.batch_size
        if batch_size is None or batch_size < 1:
            raise ValueError("give batch_size, the samples that a node computes at once")
        self.batch_size: int = batch_size
        self._data = data if loader is None else loader.dataset
        self._collate = collate or (default_collate if loader is None else loader.collate_fn)
        self._seed, self._before = seed, open_sockets()
        self._epoch, self.at = -1, 0
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
        while len(self._kept) <= count and self._more():  # one more, to see the end
            pass
        return len(self._kept) if len(self._kept) <= count else None

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
            worker_init_fn=Start(self._before, None if old is None else old.worker_init_fn),
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
    """As `Batches`, of a stream, of which only its end says how long it is."""

    def __init__(
        self, reader: Reader, policy: Policy, *, epochs: int | None, budget: int | None, stand_in: bool
    ) -> None:
        super().__init__(reader.batch_size, policy, epochs=epochs, budget=budget, stand_in=stand_in)
        self._reader = reader

    def stop(self) -> None:
        """As `Batches.stop`."""
        self._reader.close()

    def steps(self, nodes: int) -> float | None:
        """As `Batches.steps`: not known."""
        return None

    def share(self, position: Position) -> Share:
        """As `Batches.share`.

        Raises:
            ValueError: the stream has ended before this position.
        """
        left = self._reader.ahead(position, self._policy.total(self._size))
        if left == 0:
            raise ValueError(
                f"the stream has no sample {position.cursor} in epoch {position.epoch}: it has to give the "
                "same samples whenever it is read"
            )
        return self._cut(position, ENDLESS if left is None else position.cursor + left)

    def fetch(self, epoch: int, part: MicroBatch) -> Any:
        """As `Batches.fetch`."""
        return self._reader.batch(part.start, part.stop)


def opened(data: Any, batch_size: int | None, collate: Any, seed: int) -> Source | Reader:
    """What a script trains on, with an index or as a stream.

    Raises:
        ValueError, TypeError: data that cannot be shared out over nodes, with what to give instead.
    """
    warn_of_generators(data)
    streams = isinstance(data.dataset if isinstance(data, DataLoader) else data, IterableDataset)
    return (Reader if streams else Source)(data, batch_size, collate, seed)


def batches_of(
    source: Source | Reader, policy: Policy, *, epochs: int | None, budget: int | None, stand_in: bool
) -> Batches:
    """The batches of either."""
    if isinstance(source, Reader):
        return StreamedBatches(source, policy, epochs=epochs, budget=budget, stand_in=stand_in)
    return IndexedBatches(source, policy, epochs=epochs, budget=budget, stand_in=stand_in)


def passes(epochs: int | None, orders: Orders | None) -> int | None:
    """How often a run goes through its data; None: until its samples are done, or the script stops it.

    Raises:
        ValueError: no whole number.
    """
    if epochs is not None and (not isinstance(epochs, int) or epochs < 0):
        raise ValueError(
            f"epochs={epochs!r}: give a whole number from 0 on; a spec's work: {{samples: N}} ends in between"
        )
    if epochs is None and orders is None:
        return 1
    if epochs is None and orders is not None and orders.samples is None:
        warned.warn(
            "no epochs= is given, and the spec has no work: this run goes on until the script stops it, by "
            "run.stop() or by leaving its loop",
        )
    return epochs
