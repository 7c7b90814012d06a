"""Fingerprints of tensors: a few numbers that tell how far two tensors lie apart; and their final entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

ELEMENTS = 65_536
"""Elements of a tensor that count for its fingerprint, from all over it."""
PROJECTIONS = 3
"""Sums with random signs: the difference of two tensors shows in each, on average as large as it is."""
ENTRIES = 4_096
"""Elements of a tensor to keep in the end."""
ROWS = 2_048
"""Samples of a step to note."""
DIGITS = 7


def fingerprint(tensor: torch.Tensor) -> list[float]:
    """The norm of a tensor, and its projections onto vectors of random signs."""
    flat = some(tensor, ELEMENTS).to(torch.float64)
    signs = _signs(len(flat))
    return [float(flat.norm()), *(signs @ flat).tolist()]


def some(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """At most `most` elements of a tensor, from all over it, on the CPU."""
    whole = getattr(tensor, "to_local", lambda: tensor)()
    flat = whole.detach().reshape(-1)
    flat = flat[:: -(-len(flat) // most)] if len(flat) > most else flat
    return (flat.real if flat.is_complex() else flat).cpu()


def rows(tensor: torch.Tensor) -> list[str]:
    """A short text for each row of a batch, by which a sample is known again."""
    with torch.no_grad():
        found = tensor.detach()[:ROWS]
        flat = found.reshape(len(found), -1).to("cpu", torch.float64)
        values = (flat * _waves(flat.shape[1])).sum(1).tolist()
    return [f"{value:.{DIGITS}g}" for value in values]


def first_batch(values: Iterable[Any]) -> torch.Tensor | None:
    """The first tensor with samples in it among arguments."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dim() > 0 and value.numel() > 1:
                return value
            continue
        inner: Sequence[Any] = ()
        if isinstance(value, Mapping):
            inner = list(value.values())
        elif isinstance(value, list | tuple):
            inner = value
        found = first_batch(inner)
        if found is not None:
            return found
    return None


def final_state(optimizers: Sequence[Any], models: Iterable[torch.nn.Module]) -> dict[str, Any]:
    """Arrays by name, `ENTRIES` elements of each at most: `weights/3` is the fourth parameter of the first
    optimizer, `optimizer1/0/exp_avg` a state of the second one's first parameter, then `buffers/...`."""
    found: dict[str, Any] = {}
    for number, optimizer in enumerate(optimizers):
        suffix = str(number or "")
        for index, parameter in enumerate(parameters_of(optimizer)):
            found[f"weights{suffix}/{index}"] = _array(parameter)
            for key, value in (optimizer.state.get(parameter) or {}).items():  # None: another rank has it
                if isinstance(value, torch.Tensor | int | float):
                    found[f"optimizer{suffix}/{index}/{key}"] = _array(torch.as_tensor(value))
    for number, model in enumerate(models):
        for name, buffer in model.named_buffers():
            found[f"buffers{number or ''}/{name}"] = _array(buffer)
    return found


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """The parameters of an optimizer, in its order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _array(tensor: torch.Tensor) -> Any:
    entries = some(tensor, ENTRIES)
    return np.asarray(entries.to(torch.float64) if entries.is_floating_point() else entries)


@lru_cache(maxsize=256)
def _signs(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    drawn = torch.randint(0, 2, (PROJECTIONS, length), generator=generator)
    return (drawn * 2 - 1).to(torch.float64)


@lru_cache(maxsize=64)
def _waves(length: int) -> torch.Tensor:
    return torch.cos(torch.arange(1, length + 1, dtype=torch.float64) * math.sqrt(2.0)) + 1.5
