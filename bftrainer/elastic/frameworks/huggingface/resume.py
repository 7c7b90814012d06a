"""Resumes Hugging Face's Trainer from a checkpoint: its weights, and a stream's order."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch.utils.data import IterableDataset
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from bftrainer.elastic.checks.own_weights import LOOKED_AT
from bftrainer.elastic.frameworks.huggingface.evaluation import make_even
from bftrainer.elastic.frameworks.huggingface.loss_by_items import trainers_of
from bftrainer.elastic.frameworks.huggingface.order import dataset_of
from bftrainer.elastic.frameworks.model_check import Restored, check_names
from bftrainer.messages.huggingface import NOT_RESTORED

FIRST = 8
"""Samples of a stream to compare."""


def restored(checkpoint: str | None) -> Restored | None:
    """A checkpoint's state of the model's weights; None without a checkpoint, or where others than Hugging
    Face wrote its weights."""
    files = [] if checkpoint is None else sorted(Path(checkpoint).glob("model*.safetensors"))
    return Restored(_tensors(files), NOT_RESTORED) if files else None


def check_whole(checkpoint: Path, model: torch.nn.Module | None) -> None:
    """Refuse a checkpoint that has just been written with other names for some of the model's weights.

    Raises:
        RefusedError: see `check_names`.
    """
    files = sorted(checkpoint.glob("model*.safetensors"))
    names: set[str] = set()
    for file in files:
        with safe_open(file, framework="pt") as found:
            names |= set(found.keys())
    if files and model is not None:
        check_names(names, model)


def take_over(callback: Any) -> None:
    """Have the Trainer that has `callback` restore what its callbacks export into the very objects that the
    script has made: Hugging Face makes new ones, and the script's stay as they were at the start.

    And have it evaluate alike on any number of nodes, see `evaluation.make_even`.
    """
    for trainer in trainers_of(Trainer, callback):
        trainer._load_callback_state = partial(_load_into, trainer.callback_handler.callbacks, trainer)
        make_even(trainer)


def without_state(trainer: Any) -> list[Any]:
    """The callbacks of a Trainer, if there is one, that export no state into checkpoints."""
    callbacks = [] if trainer is None else trainer.callback_handler.callbacks
    return [each for each in callbacks if not isinstance(each, ExportableState)]


def _load_into(callbacks: list[Any], trainer: Any) -> None:
    before = [*callbacks]
    stored = trainer.state.stateful_callbacks
    for name, data in stored.items():
        if isinstance(data, list):  # several of one class: each checkpoint adds theirs behind the last ones
            stored[name] = data[-sum(type(each).__name__ == name for each in before) :]
    type(trainer)._load_callback_state(trainer)
    made = [each for each in callbacks if not any(each is one for one in before)]
    for each in before:
        if not any(each is one for one in callbacks):
            new = next(one for one in made if type(one) is type(each))
            made.remove(new)
            for name, value in _restored(new, stored[type(each).__name__]).items():
                setattr(each, name, value)
    callbacks[:] = before


def _restored(new: Any, stored: Any) -> dict[str, Any]:
    """Attributes that Hugging Face restored in a callback that it rebuilt: those of the checkpoint, and those
    that its constructor made of the checkpoint's arguments. Where no attribute has the name of one of these,
    it may be any."""
    kept = stored[0] if isinstance(stored, list) else stored  # those of one class have the same names
    arguments = kept.get("args", {})
    if any(name not in vars(new) for name in arguments):
        return dict(vars(new))
    return {name: getattr(new, name) for name in (*arguments, *kept.get("attributes", {}))}


def order_differs(loader: Any) -> bool:
    """True if a stream without `set_epoch` begins with other samples when it is read again.

    It is read from its beginning, and random numbers are as before afterwards.
    """
    data = dataset_of(loader)
    if not isinstance(data, IterableDataset) or hasattr(data, "set_epoch"):
        return False
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        streams = iter(data), iter(data)
        is_read_once = streams[0] is streams[1]  # it cannot be looked at without being used up
        once, again = ([] if is_read_once else [_plain(one) for one in islice(s, FIRST)] for s in streams)
        differs = once != again
    random.setstate(python)
    np.random.set_state(numpy)
    return differs


def _tensors(files: list[Path]) -> Mapping[str, torch.Tensor]:
    """The first rows of each, which have all elements that are compared: models are large."""
    found = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  no mapping
                rows = file.get_slice(name)
                found[name] = rows[:LOOKED_AT] if rows.get_shape() else file.get_tensor(name)
    return found


def _plain(sample: Any) -> Any:
    if isinstance(sample, torch.Tensor | np.ndarray | np.generic):
        return sample.tolist()
    if isinstance(sample, Mapping):
        return {name: _plain(value) for name, value in sample.items()}
    return [_plain(one) for one in sample] if isinstance(sample, list | tuple) else sample
