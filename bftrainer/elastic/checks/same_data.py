"""Compares the nodes' data sets at every start: one that is split or ordered at random differs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bftrainer.elastic.loop.observers import ReplicasDiffer, StepObserver
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.elastic.state.training_state import Stateful
from bftrainer.messages.state import OTHER_DATA, OTHER_TRAINERS_DATA

PART = "data set"
"""The name of its part of the training state; no part of a script can have it."""
SAMPLED = 64
"""Entries of every sequence to compare."""
DEPTH = 4
"""Levels of data sets within data sets to follow."""
TOLERANCE = 1e-3
"""Real numbers that were computed on another processor may differ by rounding."""


class SameData(StepObserver):
    """The data set's contents, in short: a part of the training state that compares itself.

    Of the data set and those within it, these are the length and a few entries of every attribute that is a
    list, a tuple, an array or a tensor, such as the indices of a `Subset` or a list of files (their names
    without folders, which may be each node's own).

    Args:
        data: the data set.
        trainer: its number; another trainer that goes on from the checkpoints may have other data.
        may_differ: nothing is compared if one of these patterns is like the part's name.
    """

    def __init__(self, data: Any, trainer: int, may_differ: Sequence[str] = ()) -> None:
        compared = not any(fnmatchcase(PART, pattern) for pattern in may_differ)
        self._trainer = trainer
        self._entries = entries(data) if compared else {}

    def parts(self) -> Mapping[str, Stateful]:
        return {PART: self}

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state; texts, so that rounding differs nowhere else."""
        return {"trainer": str(self._trainer), "entries": {**self._entries}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Compare with what the members, or the checkpoint, have.

        Raises:
            ReplicasDiffer: the data set is not the same.
        """
        told = difference(self._entries, state_dict["entries"])
        if told is None:
            return
        if state_dict["trainer"] != str(self._trainer):
            note_warning(OTHER_TRAINERS_DATA.say(difference=told))
            return
        raise ReplicasDiffer(OTHER_DATA.say(difference=told))


def entries(data: Any) -> dict[str, str]:
    """Contents, in short, of a data set, or a loader's, and of those within it."""
    data = data.dataset if isinstance(data, DataLoader) else data
    return {name: json.dumps(found) for name, found in _entries(data)}


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Difference of data sets; None: there is none, or one of them is not compared."""
    names = {**here, **there} if here and there else {}
    for name in names:
        if not _alike(_read(here.get(name)), _read(there.get(name))):
            return f"{name} is {_shown(here, name)} here, {_shown(there, name)} there"
    return None


def digest(found: Mapping[str, str]) -> int:
    """The same on all ranks that have the same data, but for rounding."""
    text = json.dumps(_rounded({name: json.loads(entry) for name, entry in found.items()}), sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return f"{value:.2g}" if isinstance(value, float) else value


def data_sets(data: Any, name: str = PART, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """A data set and those within it, which it keeps in attributes, or in lists there; by name."""
    yield name, data
    for attribute, value in getattr(data, "__dict__", {}).items() if depth < DEPTH else ():
        called = f"{name}.{attribute}"
        if isinstance(value, Dataset):
            yield from data_sets(value, called, depth + 1)
        elif isinstance(value, list | tuple) and any(isinstance(one, Dataset) for one in value):
            for number, one in enumerate(value):
                yield from data_sets(one, f"{called}[{number}]", depth + 1)


def _entries(data: Any) -> Iterator[tuple[str, Any]]:
    """Values of a data set to compare, by name: plain ones."""
    for name, one in data_sets(data):
        if isinstance(one, list | tuple | torch.Tensor | np.ndarray):
            yield name, _some(one)
            continue
        if hasattr(one, "__len__"):
            yield f"{name}'s length", [len(one)]
        if isinstance(chosen := _chosen(one), list):
            yield f"{name}'s rows", chosen
        for attribute, value in getattr(one, "__dict__", {}).items():
            if not attribute.startswith("_") and "cache" not in attribute:
                yield from _sequences(value, f"{name}.{attribute}")


def _chosen(data: Any) -> list[Any] | None:
    """Rows of its table that a data set of Hugging Face has, after a split or a shuffle."""
    rows: Any = getattr(data, "_indices", None)
    return _some(rows.column(0).to_numpy()) if hasattr(rows, "column") else None


def _sequences(value: Any, called: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple) and any(isinstance(one, Dataset) for one in value):
        return
    if isinstance(value, tuple) and all(isinstance(one, torch.Tensor) for one in value):
        yield from ((f"{called}[{number}]", _some(one)) for number, one in enumerate(value))
    elif isinstance(value, list | tuple | torch.Tensor | np.ndarray):
        yield called, _some(value)


def _some(values: Any) -> list[Any]:
    """The size of a sequence, and entries from all over it."""
    flat = values.reshape(-1) if isinstance(values, torch.Tensor | np.ndarray) else values
    size = len(flat)
    places = sorted({int(place) for place in np.linspace(0, size - 1, min(size, SAMPLED))})
    return [size, *(_plain(flat[place]) for place in places)]


def _plain(value: Any) -> Any:
    """An entry as a plain value; None for what is not compared."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        first = value.reshape(-1)[:4].tolist()
        value = first[0] if math.prod(value.shape) == 1 else first
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value[:4]]
    if isinstance(value, str):
        return value.rstrip("/").rsplit("/", 1)[-1]
    return value if isinstance(value, bool | int | float) else None


def _read(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _alike(mine: Any, theirs: Any, size: float = 0.0, *, is_within: bool = False) -> bool:
    if isinstance(mine, list) and isinstance(theirs, list):
        real = [abs(one) for one in (*mine, *theirs) if isinstance(one, float) and math.isfinite(one)]
        return len(mine) == len(theirs) and all(
            _alike(one, other, max(real, default=0.0), is_within=True)
            for one, other in zip(mine, theirs, strict=True)
        )
    if mine is None or theirs is None:
        return is_within or mine is theirs  # an entry that one version compares, and another does not
    if isinstance(mine, float) and isinstance(theirs, float):
        apart = abs(mine - theirs)
        return mine == theirs or apart <= TOLERANCE * size or (math.isnan(mine) and math.isnan(theirs))
    return bool(mine == theirs)


def _shown(entries: Mapping[str, str], name: str) -> str:
    found = _read(entries.get(name))
    if found is None:
        return "missing"
    size, *some = found
    first = ", ".join(str(one) for one in some[:3])
    return f"{size} entries ({first[:60]}, ...)" if some else str(size)
