"""Finds the loader of the training data, and whether its rank reads all of the data by itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import weakref
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from bftrainer.elastic.checks.same_data import entries

REMEDY = "give the loader sampler=DistributedSampler(...), and call its set_epoch(epoch)"
OF_ACCELERATE = "give it to accelerator.prepare, as the model"
FINGERPRINT = "_fingerprint"
"""What data sets of Hugging Face say of their content."""


class WholeData:
    """Remembers which DataLoader was begun last, and looks at it when the first optimizer steps.

    `mark`: a fingerprint of the data set, if the rank's loader goes through all of it; empty if not, or if
    nothing is known of its content.
    """

    def __init__(self) -> None:
        self.mark = ""
        self._begun: weakref.ref[Any] | None = None
        self._is_known = False

    def watch(self) -> None:
        """From now on, notice loaders as they are begun."""
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
                self.mark = mark_of(loader)

    def told(self, size: int) -> str:
        """What is warned of where all of `size` ranks read all of the same data."""
        accelerate = sys.modules.get("accelerate.state")
        has_accelerate = accelerate is not None and accelerate.is_initialized()
        return (
            f"each of the {size} ranks reads all training data by itself: an epoch has {size} times its "
            "samples, and without shuffling all ranks have the same batches. To share it, "
            f"{OF_ACCELERATE if has_accelerate else REMEDY}"
        )


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
