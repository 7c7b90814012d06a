"""What Hugging Face's Trainer finds when it goes on from a checkpoint: its weights, and a stream's order."""

from __future__ import annotations

import dis
import gc
import inspect
import random
from collections.abc import Container, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch.utils.data import IterableDataset
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from bftrainer.elastic.own_model import Restored
from bftrainer.elastic.own_state import OwnState, is_scripts_own
from bftrainer.elastic.train.own_weights import LOOKED_AT

LOST = (
    "keep it in an ExportableState of transformers, make it a buffer of the model (register_buffer), or "
    "compute it from state.global_step"
)
"""What to do about what a script keeps itself."""
FIRST = 8
"""So many samples of a stream are looked at."""
TOLD = (
    "the first samples of this stream are others each time it is read. If __iter__ draws their order, every "
    "start of a process within an epoch uses samples twice, and others never: draw the order from a seed and "
    "the epoch alone, which set_epoch(epoch) tells the data set. If it draws only what is done to each "
    "sample, such as a random crop, all is well"
)
HOOKS = (
    "on_train_begin of a callback, or the Trainer itself,",
    "Do that before trainer.train(), whose checkpoint comes after it, or only where "
    "elastic.checkpoint is None",
)


def restored(checkpoint: str | None) -> Restored | None:
    """What a checkpoint has of the model's weights; None without a checkpoint, or where others than
    Hugging Face wrote its weights."""
    files = [] if checkpoint is None else sorted(Path(checkpoint).glob("model*.safetensors"))
    return Restored(_tensors(files), *HOOKS) if files else None


def own_states(callback: Any, model: torch.nn.Module | None) -> dict[str, OwnState]:
    """What a script keeps in attributes, and no checkpoint has: of its model, of the Trainer that has
    `callback` if the script derived it, and of its other callbacks."""
    found: list[tuple[Any, Container[str]]] = [] if model is None else [(model, ())]
    for trainer in gc.get_objects():  # no callback is told which Trainer it is of
        every = trainer.callback_handler.callbacks if issubclass(type(trainer), Trainer) else ()
        if callback not in every:
            continue
        if is_scripts_own(type(trainer)):
            found.append((trainer, _set_by(Trainer)))
        found += [
            (each, ())
            for each in every
            if is_scripts_own(type(each)) and not isinstance(each, ExportableState)
        ]
    return {type(each).__name__: OwnState(each, but) for each, but in found}


def _set_by(kind: type) -> frozenset[str]:
    """The names of attributes that the methods of a class set."""
    methods = (one for each in kind.__mro__ for one in vars(each).values() if inspect.isfunction(one))
    return frozenset(
        str(step.argval)
        for method in methods
        for step in dis.get_instructions(inspect.unwrap(method))
        if step.opname == "STORE_ATTR"
    )


def order_differs(loader: Any) -> bool:
    """Whether a stream without `set_epoch` begins with other samples when it is read again.

    It is read from its beginning, and random numbers are as before afterwards.
    """
    data: Any = getattr(loader, "dataset", None)
    while type(data).__module__.startswith("accelerate.") and hasattr(data, "dataset"):  # a rank's part
        data = data.dataset
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
