"""What objects of a script keep in attributes, such as a count of steps or an average of weights: no
checkpoint has it, and it begins anew in every process."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Hashable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from bftrainer.elastic.train.own_weights import some
from bftrainer.elastic.warned import note_warning

DEPTH = 3
"""Objects within objects are followed so far."""
FEW = 8
"""So many entries of a container are compared, at its end."""
LIBRARIES = (
    "torch",
    "torchmetrics",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "datasets",
    "bftrainer",
)
"""What their objects keep by themselves is their own affair."""
BEST = ("MaxMetric", "MinMetric")
"""Metrics of torchmetrics that go on over epochs; others begin anew with each."""


class OwnState:
    """What an object of a script changes in its attributes.

    Args:
        of: a module, a callback or the like.
        but: names of attributes to leave out.
        saved: objects in attributes that a checkpoint has, such as schedulers.
    """

    def __init__(self, of: object, but: Container[str] = (), saved: Collection[object] = ()) -> None:
        self._of, self._saved = of, {id(each) for each in saved}
        self._marks = {name: mark for name, mark in self._found() if name not in but}

    def lost(self) -> list[str]:
        """The names of those that have changed since the start; each once."""
        now = dict(self._found())
        changed = sorted(name for name, mark in self._marks.items() if now.get(name) != mark)
        for name in changed:
            del self._marks[name]
        return changed

    def _found(self) -> Iterator[tuple[str, Hashable]]:
        for name, value in vars(self._of).items():
            if type(value) in (int, float) or (name[0] != "_" and id(value) not in self._saved):
                yield name, _mark(value, DEPTH)
        inner = self._of.named_modules() if isinstance(self._of, torch.nn.Module) else ()
        for where, module in inner:
            for name, value in vars(module).items() if where else ():
                saved = getattr(module, "_persistent", {}).get(name, False)
                is_best = type(module).__name__ in BEST and name in ("max_value", "min_value") and not saved
                if name[0] != "_" and (type(value) in (int, float) or is_best):
                    yield f"{where}.{name}", _mark(value, 0)


def is_scripts_own(defined: Any) -> bool:
    """Whether a class or function is of the script, and of none of the libraries that train for it."""
    return defined.__module__.partition(".")[0] not in LIBRARIES


def tell_of_lost(states: Mapping[str, OwnState], remedy: str) -> None:
    """Tell what has changed in objects with these names, and so is missing in a checkpoint."""
    for name, state in states.items():
        if lost := state.lost():
            note_warning(
                f"the checkpoint lacks what {name} changes while it trains: {', '.join(lost)}. It begins "
                f"anew with every start: {remedy}"
            )


def _mark(value: Any, depth: int) -> Hashable:
    """Something small that is another where the value is; None for what is not followed."""
    if type(value) in (int, float):
        return repr(value)  # so that NaN is as it was
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), repr(some(value).tolist()))
    if isinstance(value, LRScheduler):
        return value.last_epoch
    entries = _entries(value) if depth else None
    return None if entries is None else tuple(_mark(each, depth - 1) for each in entries)


def _entries(value: Any) -> list[Any] | None:
    """What is within a value, or a part of it; None for what is not followed."""
    if isinstance(value, torch.nn.Module):
        return list(islice(value.parameters(), FEW))
    if isinstance(value, Mapping):
        return [len(value), *islice(value.values(), FEW)]
    if isinstance(value, list | tuple | deque):
        return [len(value), *list(value)[-FEW:]]
    if isinstance(value, set):
        return [len(value)]
    if not is_scripts_own(type(value)) or not hasattr(value, "__dict__"):
        return None
    return [each for name, each in vars(value).items() if name[0] != "_"]
