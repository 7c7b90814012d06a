"""State as bytes: a skeleton in which slots stand for the tensors, then the tensors' memory.

Bytes come over connections that carry no proof of their sender. So they are read as a checkpoint is: plain
containers and values, and what the script has allowed with `torch.serialization.add_safe_globals`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bftrainer.messages.state import STATE_NOT_TAKEN


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Stands for one of the tensors that follow a skeleton."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype


torch.serialization.add_safe_globals([TensorPlace])


class StateError(RuntimeError):
    """A state that has something in it which members do not take from each other; `why` says what."""

    def __init__(self, why: str) -> None:
        super().__init__(STATE_NOT_TAKEN.say(why=why))
        self.why = why


def to_bytes(value: Any) -> torch.Tensor:
    """Any state as a tensor of bytes: its skeleton, then the memory of its tensors, from whatever device."""
    tensors: list[torch.Tensor] = []
    head = pickle_skeleton(value, tensors)
    parts = [memory_of(t.detach().cpu().contiguous()) for t in tensors]
    return torch.cat([memory_of(torch.tensor([len(head)])), head, *parts])


def from_bytes(data: torch.Tensor) -> Any:
    """Restore the argument of `to_bytes`, with its tensors on the CPU.

    Raises:
        StateError: see `unpickle`.
    """
    start = 8 + int(data[:8].clone().view(torch.int64))
    skeleton = unpickle(data[8:start])

    def filled(leaf: Any) -> Any:
        nonlocal start
        if not isinstance(leaf, TensorPlace):
            return leaf
        tensor = torch.empty(leaf.shape, dtype=leaf.dtype)
        memory = memory_of(tensor)
        memory.copy_(data[start : start + len(memory)])
        start += len(memory)
        return tensor

    return mapped(skeleton, filled)


def pickle_skeleton(value: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
    """`value` pickled, with slots in place of its tensors. Appends the tensors to `tensors`, in their
    order."""
    file = io.BytesIO()
    torch.save(mapped(value, lambda leaf: _slotted(leaf, tensors)), file)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def unpickle(data: torch.Tensor) -> Any:
    """The value of a pickled skeleton. Nothing that its bytes say is run.

    Raises:
        StateError: they name a class or function that no checkpoint could have either, or are no skeleton.
    """
    try:
        return torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
        said = next((line for line in str(error).splitlines() if "nsupported" in line), "it cannot be read")
        raise StateError(said.strip()) from error


def plain(leaf: Any) -> Any:
    """A NumPy scalar as Python's own: weights_only loading knows no NumPy."""
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "item") and getattr(leaf, "size", 0) == 1:
        return leaf.item()
    return leaf


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's memory as bytes: Gloo cannot broadcast every type, but it can broadcast bytes."""
    return tensor.reshape(-1).view(torch.uint8)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in a state, in the order in which `mapped` finds them."""
    tensors: list[torch.Tensor] = []
    mapped(value, lambda leaf: tensors.append(leaf) if isinstance(leaf, torch.Tensor) else None)
    return tensors


def size_of(value: Any) -> int:
    """The bytes of all tensors in a state."""
    return sum(tensor.nbytes for tensor in tensors_of(value))


def mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with `leaf` applied to everything in it that is not a container."""
    if isinstance(value, dict):
        return {key: mapped(item, leaf) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, leaf) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, leaf) for item in value)
    return leaf(value)


def _slotted(leaf: Any, found: list[torch.Tensor]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return plain(leaf)
    found.append(leaf)
    return TensorPlace(len(found) - 1, tuple(leaf.shape), leaf.dtype)
