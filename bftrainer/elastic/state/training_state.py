"""The training state: survivors keep it, newcomers receive it, and checkpoints hold it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.leaves import SAMPLED, leaves_of, sample
from bftrainer.elastic.state.packing import (
    TensorPlace,
    from_bytes,
    mapped,
    memory_of,
    pickle_skeleton,
    plain,
    size_of,
    to_bytes,
    unpickle,
)
from bftrainer.elastic.state.parts import RESERVED
from bftrainer.elastic.state.position import Position
from bftrainer.messages.state import DOES_NOT_FIT, STATE_ANEW

log = logging.getLogger(__name__)

OPTIMIZER = "optimizer"
MODEL = "model"
STEPPED = "stepped"
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
"""Optimisers that change each element of a parameter by its own gradient and state only."""
STREAM_FROM = 4 * 1024 * 1024
"""Models of fewer bytes are handed over in one broadcast: that takes milliseconds."""


LARGE = 1024 * 1024
"""Bytes from which a script's parts are sent once, when a stream closes."""


class Stateful(Protocol):
    """A model, optimizer or scheduler of PyTorch."""

    def state_dict(self) -> dict[str, Any]:
        """Its state, as nested containers with tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take over what `state_dict` has returned."""


@dataclass(frozen=True, slots=True)
class _Bulk:
    """Stands for a tensor of a parameter's shape, which arrives in chunks."""

    dtype: torch.dtype


torch.serialization.add_safe_globals([_Bulk])


class TrainingState:
    """The named parts of a training run, and its position.

    Models are called "model", or "model.G" and so on, and optimisers likewise. The *bulk* are the parameters
    and the optimiser's tensors of their shapes. The rest (buffers, counters, learning rates, schedulers) is
    *small*.
    """

    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts: dict[str, Stateful] = parts
        self._models: list[torch.nn.Module] = [v for k, v in parts.items() if k.split(".")[0] == MODEL]
        optimizers = [v for k, v in parts.items() if k.split(".")[0] == OPTIMIZER]
        self._model = self._models[0]
        self._optimizer: torch.optim.Optimizer = optimizers[0]
        self._is_several = len(optimizers) > 1 or len(self._models) > 1
        self.position = Position()

    @property
    def parts(self) -> Mapping[str, Stateful]:
        """All parts by name."""
        return self._parts

    @property
    def count(self) -> int:
        """Grows with every step of an optimiser: of two ranks, the one with more has the later state."""
        if STEPPED not in self._parts:
            return self.position.step
        return (self.position.step << 20) + len(self._parts[STEPPED].state_dict()["names"])

    # copies

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain dictionaries, as a checkpoint has it. Its tensors are the live ones."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return {"format": 1, "position": asdict(self.position), "parts": parts}

    def snapshot(self) -> dict[str, Any]:
        """A copy on the CPU that later steps do not change, loadable with `weights_only`."""
        copied: dict[str, Any] = mapped(self.as_dict(), _copied)
        return copied

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over a snapshot. A part that it lacks starts over, with a warning.

        Raises:
            ReplicasDiffer: it is of another data set.
            ValueError: it does not fit model or optimizer, with the usual cause.
        """
        for name, part in self._parts.items():
            if name.split(".")[0] in (MODEL, OPTIMIZER) and name in snapshot["parts"]:
                _fit(name, part, snapshot["parts"][name])
            elif name in snapshot["parts"]:
                part.load_state_dict(snapshot["parts"][name])
            elif name.isidentifier() or "." in name:  # others only compare, and have nothing to begin
                log.warning("%s", STATE_ANEW.say(name=name))
        self.position = Position(**snapshot["position"])

    # all at once

    def transfer(self, group: Group, source: int, *, receive: bool) -> None:
        """Broadcast the state of rank `source`, in which all ranks take part at the same time.

        Ranks without `receive` keep their own. A skeleton with a slot for every tensor goes first, then the
        tensors themselves, without pickling.

        Raises:
            GroupBroken: a member was lost meanwhile.
            StateError: what arrives is no state, or has classes in it that this script has not allowed.
        """
        if group.rank == source:
            self._broadcast(group)
            return
        size = torch.zeros(1, dtype=torch.int64)
        group.broadcast(size, source)
        data = torch.empty(int(size), dtype=torch.uint8)
        group.broadcast(data, source)
        skeleton = unpickle(data)
        slots: dict[int, TensorPlace] = {}
        mapped(
            skeleton, lambda leaf: slots.update({leaf.index: leaf}) if isinstance(leaf, TensorPlace) else None
        )
        received = []
        for _, slot in sorted(slots.items()):
            tensor = torch.empty(slot.shape, dtype=slot.dtype)
            if tensor.numel():
                group.broadcast(memory_of(tensor), source)
            received.append(tensor)
        if receive:
            self.restore(mapped(skeleton, lambda x: received[x.index] if isinstance(x, TensorPlace) else x))

    def _broadcast(self, group: Group) -> None:
        tensors: list[torch.Tensor] = []
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        data = pickle_skeleton({"position": asdict(self.position), "parts": parts}, tensors)
        group.broadcast(torch.tensor([len(data)], dtype=torch.int64), group.rank)
        group.broadcast(data, group.rank)
        for tensor in tensors:
            if tensor.numel():
                group.broadcast(memory_of(tensor.detach().cpu().contiguous()), group.rank)

    def transfer_small(self, group: Group, source: int, *, receive: bool) -> None:
        """Broadcast all but the bulk, as `transfer` does.

        Raises:
            GroupBroken: a member was lost meanwhile.
            StateError: as `transfer`.
        """
        data = to_bytes(self.small()) if group.rank == source else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([len(data)])
        group.broadcast(size, source)
        data = data if group.rank == source else torch.empty(int(size), dtype=torch.uint8)
        group.broadcast(data, source)
        if receive:
            self.restore_small(from_bytes(data))

    # in chunks

    @property
    def streams(self) -> bool:
        """True if the bulk can be handed over in chunks while others train on, and is large enough for that.

        Optimisers of your own that treat every element by itself declare it by an attribute
        `elementwise = True`. The answer is the same on all nodes that run the same script.
        """
        if self._is_several:
            return False
        each = type(self._optimizer) in ELEMENTWISE or getattr(self._optimizer, "elementwise", False)
        ours = {id(p) for p in self.parameters()}
        stepped = [p for group in self._optimizer.param_groups for p in group["params"]]
        size = sum(p.numel() * p.element_size() for p in self.parameters())
        return each and size >= STREAM_FROM and all(id(p) in ours for p in stepped)

    def parameters(self) -> list[torch.Tensor]:
        """The models' parameters, frozen ones too; tied ones once."""
        return list({id(p): p for model in self._models for p in model.parameters()}.values())

    def bulk(self, parameter: torch.Tensor) -> list[torch.Tensor]:
        """A parameter and the optimiser's tensors of its shape, in the same order on all nodes."""
        state = self._optimizer.state.get(parameter, {})
        return [parameter, *(state[key] for key in sorted(state) if _alike(state[key], parameter))]

    def small(self, *, begins: bool = False) -> dict[str, Any]:
        """All but the bulk, with `_Bulk` in the bulk's place. Tensors in it are the live ones.

        Where a stream only `begins`, large parts of the script are left out: they come when it closes.
        """
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
        if begins:
            parts = {name: part for name, part in parts.items() if name in RESERVED or size_of(part) < LARGE}
        return {"position": asdict(self.position), "parts": parts}

    def restore_small(self, small: dict[str, Any]) -> None:
        """Take over all but the bulk; where the optimiser lacks a tensor of the bulk, it gets zeros."""
        parts = small["parts"]
        stepped = [p for group in self._optimizer.param_groups for p in group["params"]]
        state = {
            index: {key: self._filled(value, stepped[index], key) for key, value in values.items()}
            for index, values in parts[OPTIMIZER]["state"].items()
        }
        taken = {**parts[OPTIMIZER], "state": state}
        self._optimizer.load_state_dict(taken)
        keep_dtypes(self._optimizer, taken)
        self._model.load_state_dict(parts[MODEL], strict=False)
        for name in parts.keys() & self._parts.keys() - {MODEL, OPTIMIZER}:
            self._parts[name].load_state_dict(parts[name])
        self.position = Position(**small["position"])

    def digests(self) -> tuple[int, int]:
        """Numbers of the bulk and of the rest: the same on two ranks, if these have the same state."""
        leaves = [*leaves_of(self._parts)]
        bulk, rest = ([leaf for leaf in leaves if leaf.is_bulk is kind] for kind in (True, False))
        return sample(bulk).digest(), sample(rest).digest()

    def _filled(self, value: Any, parameter: torch.Tensor, key: str) -> Any:
        if not isinstance(value, _Bulk):
            return value
        mine = self._optimizer.state.get(parameter, {}).get(key)
        if isinstance(mine, torch.Tensor) and _alike(mine, parameter):
            return mine
        return torch.zeros_like(parameter, dtype=value.dtype, requires_grad=False)

    def sample(self) -> torch.Tensor:
        """Bytes of a few elements of every tensor of the bulk. They differ if two states differ much."""
        found = [torch.empty(0, dtype=torch.uint8)]
        for parameter in self.parameters():
            for tensor in self.bulk(parameter):
                flat = tensor.detach().reshape(-1)
                found.append(memory_of(flat[:: max(1, flat.numel() // SAMPLED)].cpu().contiguous()))
        return torch.cat(found)


def _copied(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return plain(leaf)
    return torch.empty(leaf.shape, dtype=leaf.dtype).copy_(leaf.detach())


def _alike(value: Any, parameter: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == parameter.shape


def _fit(name: str, part: Stateful, state: dict[str, Any]) -> None:
    try:
        part.load_state_dict(state)
        if isinstance(part, torch.optim.Optimizer) and {"state", "param_groups"} <= state.keys():
            keep_dtypes(part, state)
    except (ValueError, RuntimeError, KeyError) as error:
        told = " ".join(str(error).split())
        raise ValueError(DOES_NOT_FIT.say(name=name, why=told)) from error


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
