"""The training state: what survivors keep, newcomers receive and checkpoints hold."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from bftrainer.elastic.group import Group
from bftrainer.elastic.sampler import Position

log = logging.getLogger(__name__)


class Stateful(Protocol):
    """A model, optimizer or scheduler of PyTorch."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Slot:
    """Stands for a tensor in a skeleton."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class TrainingState:
    """The named parts of a training run and its position."""

    def __init__(self, parts: dict[str, Stateful]) -> None:
        self._parts = parts
        self.position = Position()

    def snapshot(self) -> dict[str, Any]:
        """A copy on the CPU that later steps do not change; plain enough for `weights_only` loading."""
        parts = {name: _mapped(part.state_dict(), _copied) for name, part in self._parts.items()}
        return {"format": 1, "position": asdict(self.position), "parts": parts}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, part in self._parts.items():
            if name in snapshot["parts"]:
                part.load_state_dict(snapshot["parts"][name])
            else:
                log.warning("the state has no %s: it starts anew", name)
        self.position = Position(**snapshot["position"])

    def transfer(self, group: Group, source: int, *, receive: bool) -> None:
        """Broadcast the state of rank `source`; those without `receive` pass it on and keep their own.

        First a skeleton with a slot for every tensor, then the tensors themselves, without pickling.
        """
        tensors: list[torch.Tensor] = []
        packed = b""
        if group.rank == source:
            skeleton = _mapped(
                {
                    "position": asdict(self.position),
                    "parts": {name: part.state_dict() for name, part in self._parts.items()},
                },
                lambda leaf: _slotted(leaf, tensors),
            )
            buffer = io.BytesIO()
            torch.save(skeleton, buffer)
            packed = buffer.getvalue()
        size = torch.tensor([len(packed)], dtype=torch.int64)
        group.broadcast(size, source)
        data = torch.empty(int(size), dtype=torch.uint8)
        if group.rank == source:
            data = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        group.broadcast(data, source)
        if group.rank == source:
            for tensor in tensors:
                if tensor.numel():
                    group.broadcast(_bytes(tensor.detach().cpu().contiguous()), source)
            return
        # our own members wrote it a moment ago: as trustworthy as this process
        skeleton = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=False)
        slots: dict[int, _Slot] = {}
        _mapped(skeleton, lambda leaf: slots.update({leaf.index: leaf}) if isinstance(leaf, _Slot) else None)
        received = []
        for _, slot in sorted(slots.items()):
            tensor = torch.empty(slot.shape, dtype=slot.dtype)
            if tensor.numel():
                group.broadcast(_bytes(tensor), source)
            received.append(tensor)
        if receive:
            self.restore(_mapped(skeleton, lambda x: received[x.index] if isinstance(x, _Slot) else x))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's memory: Gloo cannot broadcast every type, but it can bytes."""
    return tensor.reshape(-1).view(torch.uint8)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with `leaf` applied to everything that is no container."""
    if isinstance(value, dict):
        return {key: _mapped(item, leaf) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, leaf) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, leaf) for item in value)
    return leaf(value)


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().to("cpu", copy=True)
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "item") and getattr(leaf, "size", 0) == 1:
        return leaf.item()  # weights_only loading knows no NumPy
    return leaf


def _slotted(leaf: Any, found: list[torch.Tensor]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    found.append(leaf)
    return _Slot(len(found) - 1, tuple(leaf.shape), leaf.dtype)
