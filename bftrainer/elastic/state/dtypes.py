"""The precision of what an optimiser keeps: PyTorch gives it that of the weights when it restores a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def keep_dtypes(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give what an optimiser has just taken over by `load_state_dict` the precision that it had.

    `torch.optim.Optimizer.load_state_dict` casts all tensors but `step` to the type of their parameter.
    Copies of the weights in single precision beside weights in bfloat16 would be rounded, and counts too.

    Args:
        optimizer: it.
        state: what its `load_state_dict` was given.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for number, param in zip(numbers, params, strict=True):
        mine = optimizer.state.get(param, {})
        for key, value in state["state"].get(number, {}).items():
            taken = mine.get(key)
            if not isinstance(value, torch.Tensor) or not isinstance(taken, torch.Tensor):
                continue
            if taken.dtype != value.dtype and taken.shape == value.shape:
                mine[key] = value.detach().to(taken.device, copy=True)
