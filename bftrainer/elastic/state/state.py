"""The training state: what survivors keep, newcomers receive and checkpoints hold."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.train.sampler import Position

log = logging.getLogger(__name__)

OPTIMIZER = "optimizer"
MODEL = "model"
ELEMENTWISE = frozenset(
    {
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.ASGD,
    }
)
"""Optimisers that change an element of a parameter by that element's own gradient and state only."""
STREAM_FROM = 4 * 1024 * 1024
"""Models of fewer bytes are handed over at once: that takes milliseconds."""
SAMPLED = 64
"""So many elements of every tensor are compared when a streamed state has arrived."""


class Stateful(Protocol):
    """A model, optimizer or scheduler of PyTorch."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Slot:
    """Stands for one of the tensors that follow a skeleton."""

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Bulk:
    """Stands for a tensor of a parameter's shape, which comes piece by piece."""

    dtype: torch.dtype


class TrainingState:
    """The named parts of a training run, of which "model" and "optimizer" are always there, and its position.

    The bulk of it are the parameters and those tensors of the optimiser that have a parameter's shape;
    the rest (buffers, counters, learning rates, schedulers) is called small.
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts: dict[str, Stateful] = parts
        self._model: torch.nn.Module = parts[MODEL]
        self._optimizer: torch.optim.Optimizer = parts[OPTIMIZER]
        self._copies: list[torch.Tensor] = []  # the memory of the last snapshot
        self.position = Position()

    # copies

    def snapshot(self) -> dict[str, Any]:
        """A copy on the CPU that later steps do not change; plain enough for `weights_only` loading.

        The next snapshot overwrites it: memory that is there already takes half the time to copy to.
        """
        old, self._copies = iter(self._copies), []

        def copied(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return _plain(leaf)
            copy = next(old, None)
            if copy is None or (copy.shape, copy.dtype) != (leaf.shape, leaf.dtype):
                copy = torch.empty(leaf.shape, dtype=leaf.dtype)
            self._copies.append(copy.copy_(leaf.detach()))
            return copy

        parts = {name: _mapped(part.state_dict(), copied) for name, part in self._parts.items()}
        return {"format": 1, "position": asdict(self.position), "parts": parts}

    def restore(self, snapshot: dict[str, Any]) -> None:
        for name, part in self._parts.items():
            if name in snapshot["parts"]:
                part.load_state_dict(snapshot["parts"][name])
            else:
                log.warning("the state has no %s: it starts anew", name)
        self.position = Position(**snapshot["position"])

    # all at once

    def transfer(self, group: Group, source: int, *, receive: bool) -> None:
        """Broadcast the state of rank `source`; those without `receive` pass it on and keep their own.

        First a skeleton with a slot for every tensor, then the tensors themselves, without pickling.
        """
        tensors: list[torch.Tensor] = []
        data = torch.empty(0, dtype=torch.uint8)
        if group.rank == source:
            parts = {name: part.state_dict() for name, part in self._parts.items()}
            data = _skeleton({"position": asdict(self.position), "parts": parts}, tensors)
        size = torch.tensor([len(data)], dtype=torch.int64)
        group.broadcast(size, source)
        if group.rank != source:
            data = torch.empty(int(size), dtype=torch.uint8)
        group.broadcast(data, source)
        if group.rank == source:
            for tensor in tensors:
                if tensor.numel():
                    group.broadcast(_bytes(tensor.detach().cpu().contiguous()), source)
            return
        skeleton = _unpickled(data)
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

    # piece by piece

    @property
    def streams(self) -> bool:
        """Whether the bulk can be handed over in pieces while others train on, and is worth it.

        An optimiser of another kind that treats every element by itself may say so by an attribute
        `elementwise = True`. The answer is the same on all nodes that run the same script.
        """
        each = type(self._optimizer) in ELEMENTWISE or getattr(self._optimizer, "elementwise", False)
        ours = {id(p) for p in self.parameters()}
        stepped = [p for group in self._optimizer.param_groups for p in group["params"]]
        size = sum(p.numel() * p.element_size() for p in self.parameters())
        return each and size >= STREAM_FROM and all(id(p) in ours for p in stepped)

    def parameters(self) -> list[torch.Tensor]:
        """The model's parameters, frozen ones too; tied ones once."""
        return list(self._model.parameters())

    def bulk(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """A parameter and the optimiser's tensors of its shape, in an order that all nodes share."""
        state = self._optimizer.state.get(parameter, {})
        return [parameter, *(state[key] for key in sorted(state) if _alike(state[key], parameter))]

    def small(self) -> dict[str, Any]:
        """All but the bulk, with `_Bulk` in the bulk's place. Tensors in it are the live ones."""
        optimizer = self._optimizer.state_dict()
        stepped = [p for group in self._optimizer.param_groups for p in group["params"]]
        state = {
            index: {
                key: _Bulk(value.dtype) if _alike(value, stepped[index]) else value
                for key, value in values.items()
            }
            for index, values in optimizer["state"].items()
        }
        bulky = {name for name, _ in self._model.named_parameters(remove_duplicate=False)}
        parts: dict[str, Any] = {name: part.state_dict() for name, part in self._parts.items()}
        parts[MODEL] = {key: value for key, value in parts[MODEL].items() if key not in bulky}
        parts[OPTIMIZER] = {**optimizer, "state": state}
        return {"position": asdict(self.position), "parts": parts}

    def restore_small(self, small: dict[str, Any]) -> None:
        """Take over all but the bulk; where the optimiser lacks a tensor of the bulk, it gets zeros."""
        parts = small["parts"]
        stepped = [p for group in self._optimizer.param_groups for p in group["params"]]
        state = {
            index: {key: self._filled(value, stepped[index], key) for key, value in values.items()}
            for index, values in parts[OPTIMIZER]["state"].items()
        }
        self._optimizer.load_state_dict({**parts[OPTIMIZER], "state": state})
        self._model.load_state_dict(parts[MODEL], strict=False)
        for name in parts.keys() & self._parts.keys() - {MODEL, OPTIMIZER}:
            self._parts[name].load_state_dict(parts[name])
        self.position = Position(**small["position"])

    def _filled(self, value: Any, parameter: torch.Tensor, key: str) -> Any:
        if not isinstance(value, _Bulk):
            return value
        mine = self._optimizer.state.get(parameter, {}).get(key)
        if isinstance(mine, torch.Tensor) and _alike(mine, parameter):
            return mine
        return torch.zeros_like(parameter, dtype=value.dtype, requires_grad=False)

    def sample(self) -> torch.Tensor:
        """Bytes of a few elements of every tensor of the bulk, to tell two states apart."""
        found = [torch.empty(0, dtype=torch.uint8)]
        for parameter in self.parameters():
            for tensor in self.bulk(parameter):
                flat = tensor.detach().reshape(-1)
                found.append(_bytes(flat[:: max(1, flat.numel() // SAMPLED)].cpu().contiguous()))
        return torch.cat(found)


def to_bytes(value: Any) -> torch.Tensor:
    """Any state as bytes: a skeleton, then the memory of its tensors, from whatever device."""
    tensors: list[torch.Tensor] = []
    head = _skeleton(value, tensors)
    parts = [_bytes(t.detach().cpu().contiguous()) for t in tensors]
    return torch.cat([_bytes(torch.tensor([len(head)])), head, *parts])


def from_bytes(data: torch.Tensor) -> Any:
    """What `to_bytes` was given, on the CPU."""
    start = 8 + int(data[:8].clone().view(torch.int64))
    skeleton = _unpickled(data[8:start])

    def filled(leaf: Any) -> Any:
        nonlocal start
        if not isinstance(leaf, _Slot):
            return leaf
        tensor = torch.empty(leaf.shape, dtype=leaf.dtype)
        memory = _bytes(tensor)
        memory.copy_(data[start : start + len(memory)])
        start += len(memory)
        return tensor

    return _mapped(skeleton, filled)


def _skeleton(value: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
    """`value` pickled with slots in the place of its tensors, which go to `tensors` in their order."""
    pickled = pickle.dumps(_mapped(value, lambda leaf: _slotted(leaf, tensors)))
    return torch.frombuffer(bytearray(pickled), dtype=torch.uint8)


def _unpickled(data: torch.Tensor) -> Any:
    # our own members wrote it a moment ago: as trustworthy as this process
    return pickle.loads(data.numpy().tobytes())  # noqa: S301


def _alike(value: Any, parameter: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape


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


def _plain(leaf: Any) -> Any:
    if type(leaf).__module__ == "numpy" and hasattr(leaf, "item") and getattr(leaf, "size", 0) == 1:
        return leaf.item()  # weights_only loading knows no NumPy
    return leaf


def _slotted(leaf: Any, found: list[torch.Tensor]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    found.append(leaf)
    return _Slot(len(found) - 1, tuple(leaf.shape), leaf.dtype)
