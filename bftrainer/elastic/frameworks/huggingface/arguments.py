"""Checks of a Hugging Face Trainer's arguments: refuses those under which a step would go wrong."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from bftrainer.elastic.frameworks.huggingface.order import dataset_of, length_of, sampler_of
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.warnings import note_warning


def require_data(args: Any, loader: Any, batch: int, *, is_fixed: bool) -> None:
    """Refuse training data that ranks do not share out, or which comes in another order on other nodes, or
    after a start. `is_fixed`: the number of nodes is.

    Raises:
        RefusedError: what, and what to give instead.
    """
    if type(loader) is DataLoader:
        raise RefusedError(
            "get_train_dataloader returns a DataLoader of the script's own, of which every node would take "
            "all samples: return self.accelerator.prepare(loader), with args.train_batch_size as its "
            "batch_size"
        )
    length = length_of(loader)
    if args.dataloader_drop_last and length is not None and length % batch:
        raise RefusedError(
            f"with dataloader_drop_last the number of steps in {length} samples depends on the number of "
            f"nodes: leave it out, or leave {length % batch} samples out yourself"
        )
    data = dataset_of(loader)
    is_stream = isinstance(data, IterableDataset)
    if is_stream:
        _require_stream(args, data, is_fixed=is_fixed)
    if not getattr(args, "dataloader_in_order", True) and args.dataloader_num_workers > 1:
        raise RefusedError(
            "without dataloader_in_order batches come as they are ready, and a training goes on after those "
            "that came first in order: leave it out"
        )
    config = args.accelerator_config
    if getattr(config, "dispatch_batches", None) and not is_stream:
        raise RefusedError(
            "with dispatch_batches accelerate goes on within an epoch with other samples: it leaves out too "
            "few batches, of the first epoch's order. Leave it out of accelerator_config"
        )
    if not getattr(config, "even_batches", True) and length is not None and length % batch:
        raise RefusedError(
            f"without even_batches the last step of {length} samples has other numbers of them on each node, "
            "which weigh differently, and some nodes have none and wait for ever: leave it out of "
            f"accelerator_config, or leave {length % batch} samples out yourself"
        )
    sampler = sampler_of(loader)
    if not (sampler is None or hasattr(sampler, "set_epoch") or type(sampler) is SequentialSampler):
        raise RefusedError(
            f"{type(sampler).__name__} has no set_epoch, so it draws another order after every start, and a "
            "training goes on within an epoch: give it set_epoch(epoch), from which alone its order follows"
        )


def tell_of_filled_up(loader: Any, batch: int) -> None:
    """Tell of epochs whose last step has fewer samples than others, where the number of nodes may change."""
    length = length_of(loader)
    if length is not None and (left := length % batch):
        note_warning(
            f"the last step of each epoch has {left} samples, not {batch}. On several nodes Hugging Face "
            "fills it up with samples that the epoch has had, so that what is trained depends on the number "
            f"of nodes: leave {left} of the {length} samples out, or take a batch that divides them"
        )


def _require_stream(args: Any, data: Any, *, is_fixed: bool) -> None:
    """Refuse what makes a stream's order depend on the nodes, or on when a process began.

    Raises:
        RefusedError: what, and what to give instead.
    """
    if getattr(args, "dataloader_num_workers", 0) > 1 and not is_fixed:
        raise RefusedError(
            "several worker processes read a stream in turns of a batch, whose size depends on the number of "
            "nodes, so that its order does, too: give dataloader_num_workers 1 or 0"
        )
    if getattr(args, "dataloader_persistent_workers", False) and hasattr(data, "set_epoch"):
        raise RefusedError(
            "worker processes that persist never learn a stream's next epoch, until a start makes new ones: "
            "leave dataloader_persistent_workers out"
        )
    if getattr(args.accelerator_config, "dispatch_batches", None) is False and _is_in_shards(data):
        raise RefusedError(
            "with dispatch_batches=False each node reads shards of its own of this stream, so that its order "
            "depends on the number of nodes: leave it out of accelerator_config"
        )


def _is_in_shards(data: Any) -> bool:
    """Whether it is one of Hugging Face's data sets, which accelerate shares out by shards."""
    return any(kind.__module__.partition(".")[0] == "datasets" for kind in type(data).__mro__)


def require_arguments(args: Any, *, is_fixed: bool) -> None:
    """Refuse arguments with which a training does not go on as it was. `is_fixed`: the number of nodes is.

    Raises:
        RefusedError: which, and what to give instead.
    """
    strategy = getattr(args, "train_sampling_strategy", "random")
    if strategy not in ("random", "sequential") or getattr(args, "group_by_length", False):
        raise RefusedError(
            "samples in groups of a length come in another order on another number of nodes: leave "
            "group_by_length, or train_sampling_strategy, out of TrainingArguments"
        )
    if args.accelerator_config.split_batches:
        raise RefusedError(
            "with split_batches each node has a part of per_device_train_batch_size: leave it out of "
            "accelerator_config, elastic.batch(...) gives each node its part"
        )
    if args.save_only_model or args.save_total_limit == 1:
        raise RefusedError(
            "a training goes on from whole checkpoints: leave save_only_model out, and give "
            "save_total_limit 2 or more"
        )
    if args.ignore_data_skip or args.auto_find_batch_size:
        raise RefusedError(
            "a training goes on at the sample where it was: leave ignore_data_skip and "
            "auto_find_batch_size out"
        )
    if not is_fixed and not getattr(args, "average_tokens_across_devices", True):
        raise RefusedError(
            "with average_tokens_across_devices=False each node's items weigh by that node's share, so "
            "that steps depend on the number of nodes: leave it out"
        )
