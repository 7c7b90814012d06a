"""What the script has and has not given to its run, though it will be wrong on nodes that join."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel


def forgotten(parts: Mapping[str, Any]) -> Iterator[str]:
    """For each scheduler of the run's optimisers, and each average of weights, that is not among its parts:
    what that leads to, and what to do."""
    optimizers = {id(part) for part in parts.values() if isinstance(part, torch.optim.Optimizer)}
    known = {id(one) for part in parts.values() for one in _within(part)}
    for found in gc.get_objects():
        kind = type(found)  # to ask an object of another library for its class may do anything
        if id(found) in known:
            continue
        if issubclass(kind, LRScheduler) and id(getattr(found, "optimizer", None)) in optimizers:
            yield (
                f"a {kind.__name__} changes the run's learning rate, and is not given to the run: on "
                'nodes that join it begins anew. Give it as scheduler=, or as parts={"schedule": ...}'
            )
        elif issubclass(kind, AveragedModel):
            yield (
                "an AveragedModel is no part of the run: on nodes that join it begins anew. Give it as "
                'parts={"average": ...}, and update it in a function that you give to run.after_step'
            )


def _within(part: Any) -> Iterator[Any]:
    """A part, and what it consists of."""
    yield part
    if isinstance(part, torch.nn.Module):
        yield from part.modules()
    for one in getattr(part, "_schedulers", None) or ():
        yield from _within(one)
    for one in getattr(part, "__dict__", {}).values():
        if isinstance(one, LRScheduler) and one is not part:
            yield one
