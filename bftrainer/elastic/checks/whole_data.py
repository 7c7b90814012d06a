"""Finds the loader of the training data, and whether its rank reads all of the data by itself, or some of it
twice in an epoch, or another data set than other ranks or starts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from bftrainer.elastic.checks.same_data import difference, digest, entries
from bftrainer.messages.ranks import EPOCH_FILLED_UP, EPOCH_NOT_EVEN, SKIPS_TOO_FEW, WHOLE_DATA

FINGERPRINT = "_fingerprint"
"""Attribute of Hugging Face's data sets that identifies their content."""
SHARED = "shared "
"""Prefix of a data set's fingerprint where each rank reads its share."""


class WholeData:
    """Remembers which DataLoader was begun last, and looks at it when the first optimizer steps.

    `mark`: a fingerprint of the data set, if the rank's loader goes through all of it, or through its share;
    empty if not, or if nothing is known of its content. `uneven`: what is warned of where ranks do not share
    an epoch evenly. `shared`: what a data set consists of that the ranks share, in short; `before`: the same
    of the process that wrote the checkpoint.
    """

    def __init__(self) -> None:
        self.mark = self.uneven = ""
        self.shared: dict[str, str] = {}
        self.before: Mapping[str, str] = {}
        self._begun: weakref.ref[Any] | None = None
        self._is_known = False

    def watch(self) -> None:
        """Notice, from now on, loaders as they are begun."""
        before = DataLoader.__iter__

        def begin(loader: Any) -> Any:
            if not self._is_known:
                self._begun = weakref.ref(loader)
            return before(loader)

        DataLoader.__iter__ = begin  # type: ignore[method-assign]

    def is_stepped(self) -> None:
        """An optimizer steps: the loader that was begun last is that of the training."""
        if self._is_known:
            return
        self._is_known = True
        loader = self._begun() if self._begun is not None else None
        if loader is not None:
            with contextlib.suppress(Exception):  # of a data set whose attributes cannot be read
                self.shared = entries(loader) if _shard(loader) is not None else {}
                self.mark = f"{SHARED}{digest(self.shared)}" if self.shared else mark_of(loader)
            with contextlib.suppress(Exception):  # of a sampler whose length is not known
                self.uneven = uneven(loader)

    @property
    def changed(self) -> str | None:
        """Difference of the data set from the checkpoint's; None if none is known."""
        return difference(self.shared, self.before)

    def told(self, size: int) -> str:
        """Warning where all of `size` ranks read all of the same data."""
        return WHOLE_DATA.say(size=size)


def mark_of(loader: Any) -> str:
    """See `WholeData.mark`."""
    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) is not BatchSampler or isinstance(loader.dataset, IterableDataset):
        return ""
    each = sampler.sampler
    is_random = (
        type(each) is RandomSampler and not each.replacement and each.num_samples >= len(loader.dataset)
    )
    if type(each) is not SequentialSampler and not is_random:
        return ""
    found = {**entries(loader.dataset), FINGERPRINT: json.dumps(getattr(loader.dataset, FINGERPRINT, None))}
    lengths = {name for name, entry in found.items() if name.endswith("'s length") or entry == "null"}
    if found.keys() <= lengths:  # nothing is known of what is in it
        return ""
    return hashlib.blake2b(json.dumps(found, sort_keys=True).encode(), digest_size=8).hexdigest()


def _shard(loader: Any) -> Any:
    """Object that gives a rank its share of the loader's batches or samples; None if there is none."""
    batches: Any = getattr(loader, "batch_sampler", None)
    if hasattr(batches, "batch_sampler"):  # accelerate's, around that of the script
        return batches
    sampler = getattr(batches, "sampler", None)
    return sampler if isinstance(sampler, DistributedSampler) else None


def _dispatcher(loader: Any) -> Any:
    """Reader of this loader on rank 0 for all ranks, of accelerate with dispatch_batches; else None."""
    state: Any = sys.modules.get("accelerate.state")
    reader = state.GradientState().active_dataloader if state is not None else None
    is_this = getattr(reader, "base_dataloader", None) is loader
    return reader if is_this and hasattr(reader, "_fetch_batches") else None


def _uneven_dispatched(reader: Any, batches: Any, skipped: int) -> str:
    """See `uneven`, where each step takes a batch of the loader for every rank, or shares one batch out."""
    ranks, at_once = reader.state.num_processes, 1 if reader.split_batches else reader.state.num_processes
    if at_once > 1 and skipped:
        return SKIPS_TOO_FEW.say(skipped=skipped, ranks=ranks)
    total, length = batches.batch_size * at_once, len(batches.sampler)
    left = length % total
    if left % ranks and not batches.drop_last and not reader._drop_last:
        done = "accelerate fills it up with samples that the epoch has had"
        return EPOCH_FILLED_UP.say(left=left, total=total, done=done, length=length)
    return ""


def uneven(loader: Any) -> str:
    """Warning where the ranks do not share the samples of an epoch evenly, so that some are taken twice, or
    weigh more than others; empty where they do, or there is no telling.

    Raises:
        TypeError: a sampler has no length.
    """
    batches: Any = getattr(loader, "batch_sampler", None)
    shard: Any = None
    skipped = getattr(batches, "skip_batches", 0)
    while hasattr(batches, "batch_sampler"):  # accelerate's, around that of the script
        shard = batches if hasattr(batches, "even_batches") else shard
        batches = batches.batch_sampler
    if (reader := _dispatcher(loader)) is not None:
        return _uneven_dispatched(reader, batches, skipped)
    sampler: Any = getattr(batches, "sampler", None)
    if shard is not None and not shard.drop_last:
        total, length = shard.batch_size * (1 if shard.split_batches else shard.num_processes), len(sampler)
        filled = "accelerate fills it up with samples that the epoch has had"
        done = filled if shard.even_batches else "ranks have different numbers of them, which weigh alike"
        if left := length % total:
            return EPOCH_FILLED_UP.say(left=left, total=total, done=done, length=length)
    if isinstance(sampler, DistributedSampler) and not sampler.drop_last:
        data: Any = sampler.dataset
        ranks, length = sampler.num_replicas, len(data)
        if left := length % ranks:
            return EPOCH_NOT_EVEN.say(length=length, ranks=ranks, twice=ranks - left, left=left)
    return ""
