"""What the callback for Hugging Face refuses, before a step of it would go wrong."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, SequentialSampler


def require_data(args: Any, loader: Any, batch: int) -> None:
    """Refuse training data that ranks do not share out, or which comes in another order on other nodes.

    Raises:
        ValueError: what, and what to give instead.
    """
    if type(loader) is DataLoader:
        raise ValueError(
            "get_train_dataloader returns a DataLoader of the script's own, of which every node would take "
            "all samples: return self.accelerator.prepare(loader), with args.train_batch_size as its "
            "batch_size"
        )
    length = length_of(loader)
    if args.dataloader_drop_last and length is not None and length % batch:
        raise ValueError(
            f"with dataloader_drop_last the number of steps in {length} samples depends on the number of "
            f"nodes: leave it out, or leave {length % batch} samples out yourself"
        )
    sampler = _sampler(loader)
    if not (sampler is None or hasattr(sampler, "set_epoch") or type(sampler) is SequentialSampler):
        raise ValueError(
            f"{type(sampler).__name__} has no set_epoch, so it draws another order after every start, and a "
            "training goes on within an epoch: give it set_epoch(epoch), from which alone its order follows"
        )


def require_arguments(args: Any, *, is_fixed: bool) -> None:
    """Refuse arguments with which a training does not go on as it was. `is_fixed`: the number of nodes is.

    Raises:
        ValueError: which, and what to give instead.
    """
    strategy = getattr(args, "train_sampling_strategy", "random")
    if strategy not in ("random", "sequential") or getattr(args, "group_by_length", False):
        raise ValueError(
            "samples in groups come in another order on another number of nodes: "
            "leave train_sampling_strategy and group_by_length out"
        )
    if args.accelerator_config.split_batches:
        raise ValueError(
            "with split_batches each node has a part of per_device_train_batch_size: leave it out of "
            "accelerator_config, elastic.batch(...) gives each node its part"
        )
    if args.save_only_model or args.save_total_limit == 1:
        raise ValueError(
            "a training goes on from whole checkpoints: leave save_only_model out, and give "
            "save_total_limit 2 or more"
        )
    if args.ignore_data_skip or args.auto_find_batch_size:
        raise ValueError(
            "a training goes on at the sample where it was: leave ignore_data_skip and "
            "auto_find_batch_size out"
        )
    if not is_fixed and not getattr(args, "average_tokens_across_devices", True):
        raise ValueError(
            "with average_tokens_across_devices=False each node's items weigh by that node's share, so "
            "that steps depend on the number of nodes: leave it out"
        )


def _sampler(loader: Any) -> Any:
    """What chooses the samples; None for a stream."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    batches = getattr(loader, "batch_sampler", None)
    return getattr(getattr(batches, "batch_sampler", batches), "sampler", None)  # accelerate's, on ranks


def length_of(loader: Any) -> int | None:
    """The samples of an epoch; None where the data set does not say."""
    try:
        return len(loader.dataset)
    except (TypeError, AttributeError):
        return None
