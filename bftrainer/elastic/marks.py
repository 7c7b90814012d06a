"""Something small of a value that is another where the value is: what a script keeps can be large."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Collection, Hashable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

from bftrainer.elastic.train.own_weights import some

FEW = 8
"""So many entries of a container are compared at its end, and about as many from all over it."""
SPREAD = 64
"""So many elements of an array are compared, from all over it."""
LIBRARIES = (
    "torch",
    "torchmetrics",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "datasets",
    "accelerate",
    "bftrainer",
)
"""What their objects keep by themselves is their own affair."""
CONFIG = "pretrainedconfig"
"""The base class of configs of transformers, in small letters: versions write it differently."""
AT_SAVE = frozenset({"architectures", "dtype", "torch_dtype"})
"""What transformers itself notes in a model's config when it saves the model."""


def is_scripts_own(defined: Any) -> bool:
    """Whether a class or function is of the script, and of none of the libraries that train for it."""
    return defined.__module__.partition(".")[0] not in LIBRARIES


def mark(value: Any, depth: int, saved: Collection[int] = ()) -> Hashable:
    """Something small that is another where the value is; None for what is not followed.

    Args:
        value: anything.
        depth: objects within objects are followed so far.
        saved: the ids of objects that a checkpoint has.
    """
    if id(value) in saved:
        return None
    itself = _itself(value)
    if itself is not None or not depth:
        return itself
    entries = _entries(value)
    return None if entries is None else tuple(mark(each, depth - 1, saved) for each in entries)


def _itself(value: Any) -> Hashable:
    """A number, an array, or how far something has come; None for what has others in it."""
    found: Hashable = _drawn(value)
    if type(value) in (int, float):
        found = repr(value)  # so that NaN is as it was
    elif isinstance(value, torch.Tensor):
        found = (tuple(value.shape), repr(some(value).tolist()), repr(_spread(value).tolist()))
    elif isinstance(value, np.ndarray):
        found = (value.shape, repr(value.reshape(-1)[:: value.size // SPREAD + 1].tolist()))
    elif isinstance(value, LRScheduler):
        found = value.last_epoch
    return found


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: len(flat) // SPREAD + 1]


def _some_of(values: list[Any]) -> list[Any]:
    return [*values[:: len(values) // FEW + 1], *values[-FEW:]]


def _drawn(value: Any) -> str | None:
    """How far a generator of random numbers has come; None for what is none."""
    if isinstance(value, torch.Generator):
        state = repr(value.get_state().tolist())
    elif isinstance(value, random.Random):
        state = repr(value.getstate())
    elif isinstance(value, np.random.Generator):
        state = repr(value.bit_generator.state)
    elif isinstance(value, np.random.RandomState):
        state = repr(value.get_state(legacy=False))
    else:
        return None
    return hashlib.blake2b(state.encode(), digest_size=8).hexdigest()


def _entries(value: Any) -> list[Any] | None:
    """What is within a value, or a part of it; None for what is not followed."""
    if isinstance(value, torch.nn.Module):
        return _some_of([*value.parameters()])
    if isinstance(value, Mapping):
        return [len(value), *_some_of([*value.values()])]
    if isinstance(value, list | tuple | deque):
        return [len(value), *_some_of([*value])]
    if isinstance(value, set):
        return [len(value)]
    if isinstance(value, ModuleType) or not is_scripts_own(type(value)) or not hasattr(value, "__dict__"):
        return None
    noted = AT_SAVE if any(each.__name__.lower() == CONFIG for each in type(value).__mro__) else frozenset()
    return [each for name, each in vars(value).items() if name[0] != "_" and name not in noted]
