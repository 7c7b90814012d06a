"""The training state: what survivors keep, newcomers receive and checkpoints hold."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from bftrainer.elastic.group import Group
from bftrainer.elastic.sampler import Position


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
        parts = {name: _copied(part.state_dict()) for name, part in self._parts.items()}
        return {"format": 1, "position": asdict(self.position), "parts": parts}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(snapshot["parts"][name])
        self.position = Position(**snapshot["position"])

    def transfer(self, group: Group, source: int, *, receive: bool) -> None:
        """Broadcast the state of rank `source`; those without `receive` pass it on and keep their own.

        First a skeleton with a slot for every tensor, then the tensors themselves, without pickling.
        """
        tensors: list[torch.Tensor] = []
        packed = b""
        if group.rank == source:
            skeleton = _without_tensors(
                {
                    "position": asdict(self.position),
                    "parts": {name: part.state_dict() for name, part in self._parts.items()},
                },
                tensors,
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
                group.broadcast(tensor.detach().cpu().contiguous(), source)
            return
        # our own members wrote it a moment ago: as trustworthy as this process
        skeleton = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=False)
        slots: list[_Slot] = []
        _collect(skeleton, slots)
        received = []
        for slot in sorted(slots, key=lambda s: s.index):
            tensor = torch.empty(slot.shape, dtype=slot.dtype)
            group.broadcast(tensor, source)
            received.append(tensor)
        if receive:
            self.restore(_filled(skeleton, received))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item) for item in value)
    return value


def _without_tensors(value: Any, found: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return _Slot(len(found) - 1, tuple(value.shape), value.dtype)
    if isinstance(value, dict):
        return {key: _without_tensors(item, found) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_tensors(item, found) for item in value)
    return value


def _collect(value: Any, found: list[_Slot]) -> None:
    if isinstance(value, _Slot):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)


def _filled(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Slot):
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _filled(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_filled(item, tensors) for item in value)
    return value
