"""The order in which Hugging Face's Trainer reads its training data: the same after every start."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, IterableDataset

from bftrainer.elastic.attach.collectives import highest

SEEDS = 2**62
"""Bound of seeds: ranks exchange signed numbers."""


def order_of(loader: Any, before: int | None) -> int | None:
    """Have all ranks read the same order, and that of the checkpoint. All ranks must call it.

    Without a `data_seed` accelerate takes the seed that PyTorch's generator had last, which a script may have
    set by the time or the rank.

    Args:
        before: what this has returned to the process that wrote the checkpoint; None without one.

    Returns:
        The seed of the order; None where a sampler of the script's own draws it.
    """
    sampler = sampler_of(loader)
    mine = getattr(sampler, "initial_seed", None)
    agreed = highest([mine % SEEDS if isinstance(mine, int) else -1])[0]
    if not isinstance(mine, int):
        return None
    sampler.initial_seed = agreed if before is None else before
    return int(sampler.initial_seed)


def begin_epoch(loader: Any, epoch: int) -> None:
    """Tell the sampler its epoch: where a training goes on within one, accelerate does not tell a sampler of
    the script's own."""
    sampler = sampler_of(loader)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)


def sampler_of(loader: Any) -> Any:
    """Sampler of the samples, or of batches; None for a stream."""
    if isinstance(dataset_of(loader), IterableDataset):
        return None
    batches = getattr(loader, "batch_sampler", None)
    if batches is None and isinstance(getattr(loader, "sampler", None), BatchSampler):
        batches = loader.sampler
    batches = getattr(batches, "batch_sampler", batches)  # within accelerate's, on ranks
    return getattr(batches, "sampler", batches)


def dataset_of(loader: Any) -> Any:
    """The data set that the script has given; None where the loader has none."""
    data: Any = getattr(loader, "dataset", None)
    while type(data).__module__.startswith("accelerate.") and hasattr(data, "dataset"):  # a rank's part
        data = data.dataset
    return data


def length_of(loader: Any) -> int | None:
    """The samples of an epoch over all ranks; None where neither sampler nor data set say."""
    sampler, data = sampler_of(loader), dataset_of(loader)
    for counted in (data,) if isinstance(sampler, BatchSampler) else (sampler, data):
        try:
            return len(counted)
        except (TypeError, AttributeError):
            continue
    return None
