"""Checks of a Hugging Face Trainer's arguments: refuses those under which a step would go wrong."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from bftrainer.elastic.frameworks.huggingface.order import dataset_of, length_of, sampler_of
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.huggingface import (
    DISPATCH,
    DROP_LAST,
    FILLED_UP,
    GOES_ON_ELSEWHERE,
    GROUPED,
    NO_SET_EPOCH,
    NOT_EVEN,
    OUT_OF_ORDER,
    OWN_LOADER,
    SAVES_TOO_LITTLE,
    SPLIT_BATCHES,
    STREAM_PERSISTS,
    STREAM_SHARDS,
    STREAM_WORKERS,
    TOKENS_APART,
)


def check_data(args: Any, loader: Any, batch: int, *, is_fixed: bool) -> None:
    """Refuse training data that ranks do not share out, or which comes in another order on other nodes, or
    after a start. `is_fixed`: the number of nodes is.

    Raises:
        RefusedError: what, and what to give instead.
    """
    if type(loader) is DataLoader:
        raise RefusedError(OWN_LOADER.say())
    length = length_of(loader)
    if args.dataloader_drop_last and length is not None and length % batch:
        raise RefusedError(DROP_LAST.say(length=length, left=length % batch))
    data = dataset_of(loader)
    is_stream = isinstance(data, IterableDataset)
    if is_stream:
        _check_stream(args, data, is_fixed=is_fixed)
    if not getattr(args, "dataloader_in_order", True) and args.dataloader_num_workers > 1:
        raise RefusedError(OUT_OF_ORDER.say())
    config = args.accelerator_config
    if getattr(config, "dispatch_batches", None) and not is_stream:
        raise RefusedError(DISPATCH.say())
    if not getattr(config, "even_batches", True) and length is not None and length % batch:
        raise RefusedError(NOT_EVEN.say(length=length, left=length % batch))
    sampler = sampler_of(loader)
    if not (sampler is None or hasattr(sampler, "set_epoch") or type(sampler) is SequentialSampler):
        raise RefusedError(NO_SET_EPOCH.say(sampler=type(sampler).__name__))


def warn_of_filled_up(loader: Any, batch: int) -> None:
    """Tell of epochs whose last step has fewer samples than others, where the number of nodes may change."""
    length = length_of(loader)
    if length is not None and (left := length % batch):
        note_warning(FILLED_UP.say(left=left, batch=batch, length=length))


def _check_stream(args: Any, data: Any, *, is_fixed: bool) -> None:
    """Refuse what makes a stream's order depend on the nodes, or on when a process began.

    Raises:
        RefusedError: what, and what to give instead.
    """
    if getattr(args, "dataloader_num_workers", 0) > 1 and not is_fixed:
        raise RefusedError(STREAM_WORKERS.say())
    if getattr(args, "dataloader_persistent_workers", False) and hasattr(data, "set_epoch"):
        raise RefusedError(STREAM_PERSISTS.say())
    if getattr(args.accelerator_config, "dispatch_batches", None) is False and _is_in_shards(data):
        raise RefusedError(STREAM_SHARDS.say())


def _is_in_shards(data: Any) -> bool:
    """True if it is one of Hugging Face's data sets, which accelerate shares out by shards."""
    return any(kind.__module__.partition(".")[0] == "datasets" for kind in type(data).__mro__)


def check_arguments(args: Any, *, is_fixed: bool) -> None:
    """Refuse arguments with which a training does not go on as it was. `is_fixed`: the number of nodes is.

    Raises:
        RefusedError: which, and what to give instead.
    """
    strategy = getattr(args, "train_sampling_strategy", "random")
    if strategy not in ("random", "sequential") or getattr(args, "group_by_length", False):
        raise RefusedError(GROUPED.say())
    if args.accelerator_config.split_batches:
        raise RefusedError(SPLIT_BATCHES.say())
    if args.save_only_model or args.save_total_limit == 1:
        raise RefusedError(SAVES_TOO_LITTLE.say())
    if args.ignore_data_skip or args.auto_find_batch_size:
        raise RefusedError(GOES_ON_ELSEWHERE.say())
    if not is_fixed and not getattr(args, "average_tokens_across_devices", True):
        raise RefusedError(TOKENS_APART.say())
