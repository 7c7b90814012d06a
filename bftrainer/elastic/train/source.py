"""The data of a run: a data set, or the data set and options of a `DataLoader`."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from bftrainer.elastic.members.sockets import is_network, open_sockets
from bftrainer.messages.arguments import (
    ALL_DROPPED,
    NO_BATCH_SIZE,
    NO_INDEX,
    NO_SAMPLES,
    OWN_BATCHES,
    OWN_SAMPLER,
    TWO_BATCH_SIZES,
)

_PR_SET_PDEATHSIG = 1


class Source:
    """Samples by their index, collated into batches.

    Args:
        data: a map-style data set with a length, or a DataLoader over one, of which this takes over data set,
            batch size, collation, workers, pinned memory, shuffling and `drop_last`.
        batch_size: the most samples that a node computes at once; None: the DataLoader's.
        collate: makes a batch from a list of samples; None: the DataLoader's, or PyTorch's.
        seed: of the epochs' permutations.

    Raises:
        ValueError, TypeError: data that cannot be shared out over nodes, with what to give instead.
    """

    def __init__(
        self, data: Any, batch_size: int | None, collate: Callable[[list[Any]], Any] | None, seed: int
    ) -> None:
        self._loader = data if isinstance(data, DataLoader) else None
        if self._loader is not None:
            _check(self._loader)
            if batch_size is not None and batch_size != self._loader.batch_size:
                raise ValueError(
                    TWO_BATCH_SIZES.say(batch_size=batch_size, of_loader=self._loader.batch_size)
                )
            batch_size, data = self._loader.batch_size, self._loader.dataset
        if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__"):
            raise TypeError(NO_INDEX.say(data=type(data).__name__))
        if batch_size is None or batch_size < 1:
            raise ValueError(NO_BATCH_SIZE.say(given=batch_size))
        if len(data) < 1:
            raise ValueError(NO_SAMPLES.say())
        self.batch_size = batch_size
        drops = self._loader is not None and self._loader.drop_last
        self.length = len(data) - len(data) % batch_size if drops else len(data)
        """The samples of an epoch; with `drop_last`, those of whole batches."""
        if not self.length:
            raise ValueError(ALL_DROPPED.say(samples=len(data), batch_size=batch_size))
        self._data, self._seed = data, seed
        self._collate = collate or (self._loader.collate_fn if self._loader else default_collate)
        self._shuffles = self._loader is None or isinstance(self._loader.sampler, RandomSampler)
        self._from_before = open_sockets()
        self._order = lru_cache(maxsize=1)(self._permuted)

    @property
    def ahead(self) -> bool:
        """True if worker processes fetch batches ahead."""
        return self._loader is not None and self._loader.num_workers > 0

    def indices(self, epoch: int, start: int, stop: int) -> list[int]:
        """The data set's indices at [start, stop) of an epoch's permutation."""
        found: list[int] = self._order(epoch)[start:stop].tolist()
        return found

    def fetch(self, indices: list[int]) -> Any:
        """The batch of these samples, fetched by this process."""
        if isinstance(self._data, TensorDataset):
            batch: Any = self._data[torch.tensor(indices)]
        else:
            many = getattr(self._data, "__getitems__", None)
            batch = self._collate(many(indices) if many else [self._data[i] for i in indices])
        return pinned(batch) if self._loader is not None and self._loader.pin_memory else batch

    def stream(self, plan: Iterable[list[int]]) -> Iterator[Any]:
        """The batches of `plan`, fetched ahead by a DataLoader's worker processes."""
        old = self._loader
        assert old is not None  # noqa: S101  only where `ahead`
        return iter(
            DataLoader(
                self._data,
                batch_sampler=plan,
                collate_fn=self._collate,
                num_workers=old.num_workers,
                pin_memory=old.pin_memory,
                timeout=old.timeout,
                worker_init_fn=LoaderStart(self._from_before, old.worker_init_fn),
                multiprocessing_context=old.multiprocessing_context,
                prefetch_factor=old.prefetch_factor,
            )
        )

    def _permuted(self, epoch: int) -> torch.Tensor:
        if not self._shuffles:
            return torch.arange(self.length)
        every = len(self._data)  # with `drop_last`, each epoch leaves out others
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
        return torch.randperm(every, generator=generator)


def _check(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(NO_INDEX.say(data=type(loader.dataset).__name__))
    if loader.batch_size is None:
        raise ValueError(OWN_BATCHES.say())
    sampler = loader.sampler
    plain = isinstance(sampler, RandomSampler) and not sampler.replacement
    if not (isinstance(sampler, SequentialSampler) or plain) or len(sampler) != len(loader.dataset):  # type: ignore[arg-type]
        raise ValueError(OWN_SAMPLER.say(sampler=type(sampler).__name__))


def pinned(batch: Any) -> Any:
    """A batch in memory from which it is copied to a GPU in the background; as it is, where there is no
    accelerator, as a DataLoader has it."""
    if not torch.accelerator.is_available():
        return batch
    return torch.utils.data._utils.pin_memory.pin_memory(batch)  # type: ignore[no-untyped-call]


class LoaderStart:
    """First task of a forked worker process of a DataLoader.

    It closes the group's connections: else peers would not learn that its parent has closed them. And it has
    the kernel kill it when its parent dies (if the parent died before that, PyTorch ends it within seconds).

    The connections' objects were copied with the parent's memory, and may close their descriptors once more.
    So their numbers stay taken: else such a close would hit a batch in shared memory.
    """

    def __init__(self, keep: frozenset[int], then: Callable[[int], None] | None) -> None:
        self._keep, self._then = keep, then

    def __call__(self, worker: int) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd in open_sockets() - self._keep:
            if is_network(fd):
                os.dup2(nothing, fd)
        os.close(nothing)
        if self._then is not None:
            self._then(worker)
