"""Entries of a training state by name, which must be the same on all nodes, and samples of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm

from bftrainer.elastic.state.parts import UNSAVED

SAMPLED = 64
"""Elements of every tensor to compare, about."""
ROUNDING = 1e-4
"""Share of their largest element by which tensors may differ: other hardware rounds otherwise."""
EXACT = 1e-9
"""Share of their value by which numbers may differ."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One entry: a tensor or a number. `is_bulk`: a parameter, or an optimiser's tensor of its shape."""

    name: str
    value: Any
    is_bulk: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A few elements of every entry, one after the other in `values` (float64, on the CPU)."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    allowed: tuple[float, ...]  # how much of the largest element each may differ by
    values: torch.Tensor

    def digest(self) -> int:
        """A number of 62 bits that differs where names or values do."""
        found = hashlib.blake2b("\n".join(self.names).encode(), digest_size=8)
        found.update(self.values.numpy().tobytes())
        return int.from_bytes(found.digest(), "big") >> 2

    def entries(self) -> Iterator[tuple[str, torch.Tensor, float]]:
        """Name, elements and allowance of every entry."""
        return zip(self.names, torch.split(self.values, list(self.sizes)), self.allowed, strict=True)


def sample(leaves: Iterable[Leaf]) -> Sample:
    """The sample of these entries. Tensors of one device are copied from it at once."""
    names, allowed, pieces = [], [], []
    for leaf in leaves:
        names.append(leaf.name)
        if isinstance(leaf.value, torch.Tensor):
            pieces.append(_few(leaf.value.detach()))
            kind = leaf.value.dtype
            allowed.append(max(ROUNDING, 16 * torch.finfo(kind).eps) if kind.is_floating_point else EXACT)
        else:
            pieces.append(torch.tensor([float(leaf.value)], dtype=torch.float64))
            allowed.append(EXACT)
    sizes = tuple(piece.numel() for piece in pieces)
    return Sample(tuple(names), sizes, tuple(allowed), _gathered(pieces))


def leaves_of(parts: Mapping[str, Any]) -> Iterator[Leaf]:
    """The entries of all parts that must agree. Statistics of normalisation layers are a node's own, also
    where a script keeps a copy of a model's `state_dict()`."""
    known: dict[int, str] = {}
    copied: set[str] = set()
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module):
            copied |= {f".{own}" for own, _, is_own in _buffers(part) if is_own}
            for own, parameter in part.named_parameters():
                known[id(parameter)] = f"{name}.{own}"
                yield Leaf(f"{name}.{own}", parameter, is_bulk=name.split(".")[0] == "model")
            yield from (Leaf(f"{name}.{own}", value) for own, value, is_own in _buffers(part) if not is_own)
    for name, part in parts.items():
        if isinstance(part, torch.optim.Optimizer):
            yield from _optimizer(name, part, known)
        elif not isinstance(part, torch.nn.Module) and name != UNSAVED:  # these are compared as buffers
            found = _nested(name, part.state_dict())
            yield from (leaf for leaf in found if not leaf.name.endswith(tuple(copied)))


def _buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Name and value of each buffer, and whether it is each node's own."""
    for path, each in module.named_modules():
        norm = isinstance(each, _NormBase | _SpectralNorm)
        for own, buffer in each.named_buffers(recurse=False):
            older = hasattr(each, f"{own[:-2]}_orig")  # form of a spectral norm
            yield ".".join(filter(None, (path, own))), buffer, norm or older


def _optimizer(name: str, optimizer: torch.optim.Optimizer, known: Mapping[int, str]) -> Iterator[Leaf]:
    for number, group in enumerate(optimizer.param_groups):
        settings = {key: value for key, value in group.items() if key != "params"}
        yield from _nested(f"{name} group {number}", settings)
        for index, parameter in enumerate(group["params"]):
            owner = known.get(id(parameter), f"parameter {index} of group {number}")
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                alike = isinstance(value, torch.Tensor) and value.shape == parameter.shape
                yield from _nested(f"{name} {key} of {owner}", value, is_bulk=alike)


def _nested(name: str, value: Any, *, is_bulk: bool = False) -> Iterator[Leaf]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _nested(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for key, item in enumerate(value):
            yield from _nested(f"{name}[{key}]", item)
    elif isinstance(value, torch.Tensor | bool | int | float):
        yield Leaf(name, value, is_bulk)


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers as real ones, in the same memory: a complex one is two."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _few(tensor: torch.Tensor) -> torch.Tensor:
    tensor = as_real(tensor)
    count = tensor.numel()
    if tensor.is_sparse or not count:
        return torch.zeros(1, dtype=torch.float64)
    apart = max(1, count // SAMPLED)
    if tensor.is_contiguous():
        return tensor.view(-1)[::apart][:SAMPLED]
    at = torch.arange(0, count, apart, device=tensor.device)[:SAMPLED]  # to flatten it would copy all of it
    return tensor[torch.unravel_index(at, tensor.shape)]


def _gathered(pieces: list[torch.Tensor]) -> torch.Tensor:
    """All pieces as float64, in their order, with one copy from every device and type."""
    if not pieces:
        return torch.empty(0, dtype=torch.float64)
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, piece in enumerate(pieces):
        kinds.setdefault((piece.device, piece.dtype), []).append(number)
    found: list[torch.Tensor] = [pieces[0]] * len(pieces)
    for numbers in kinds.values():
        together = torch.cat([pieces[n] for n in numbers]).cpu().double()
        for n, piece in zip(
            numbers, torch.split(together, [pieces[n].numel() for n in numbers]), strict=True
        ):
            found[n] = piece
    return torch.cat(found)
