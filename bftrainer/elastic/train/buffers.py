"""Buffers as they were when a turn of the loop began: a pass whose step is lost leaves no trace in them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.process import warnings
from bftrainer.elastic.state.packing import from_bytes, to_bytes
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.loop import BUFFERS_TOO_LARGE

SMALL = 64 * 2**20
"""Bytes that may always be kept; more, if the parameters have more."""


class Layers:
    """The modules of models that have buffers or more state, listed again only when a module anywhere has got
    other children or become another type: of large models, listing takes longer than a small model's step."""

    def __init__(self, models: list[torch.nn.Module]) -> None:
        self._models = models
        self._seen: list[tuple[torch.nn.Module, type, tuple[torch.nn.Module | None, ...]]] = []
        self._extra: list[torch.nn.Module] = []

    def extra(self) -> list[torch.nn.Module]:
        """Those that keep state beside parameters and buffers, as of the last `buffers`."""
        return self._extra

    def buffers(self) -> dict[tuple[torch.nn.Module, str], torch.Tensor]:
        """The buffers as they are now, by module and name."""
        self._look()
        return {
            (module, name): buffer
            for module, _, _ in self._seen
            if module._buffers
            for name, buffer in module.named_buffers(recurse=False)
            if buffer.layout == torch.strided
        }

    def _look(self) -> None:
        if self._seen and all(
            type(module) is kind and tuple(module._modules.values()) == children
            for module, kind, children in self._seen
        ):
            return
        every = dict.fromkeys(module for model in self._models for module in model.modules())
        self._seen = [(module, type(module), tuple(module._modules.values())) for module in every]
        own = torch.nn.Module.get_extra_state
        self._extra = [module for module in every if type(module).get_extra_state is not own]


class KeptBuffers:
    """Copies of the models' buffers, such as the statistics of normalisation layers, and of what layers keep
    by `get_extra_state`."""

    def __init__(self, trained: Trained) -> None:
        self._models = list(trained.models.values())
        self._layers = Layers(self._models)
        self._copies: dict[tuple[torch.nn.Module, str], torch.Tensor] = {}
        self._extra: list[tuple[torch.nn.Module, Any]] = []
        self._too_large = 0  # bytes

    @torch.no_grad()
    def begin(self, *, may_be_lost: bool) -> None:
        """A turn begins. Without other members its step cannot be lost, and nothing is kept."""
        found = self._layers.buffers() if may_be_lost else {}
        size = sum(buffer.nbytes for buffer in found.values())
        parameters = (
            sum(p.nbytes for model in self._models for p in model.parameters()) if size > SMALL else 0
        )
        self._too_large = size if size > max(SMALL, parameters) else 0
        before, self._copies = self._copies, {}
        extra = self._layers.extra() if may_be_lost else ()
        self._extra = [(each, deepcopy(each.get_extra_state())) for each in extra]
        for place, buffer in found.items() if not self._too_large else ():
            copy = before.get(place)
            if copy is None or (copy.shape, copy.dtype, copy.device) != _kind(buffer):
                self._copies[place] = buffer.clone()
            else:
                self._copies[place] = copy.copy_(buffer)

    @torch.no_grad()
    def restore(self) -> None:
        """The step was lost, and its samples come again."""
        for module, extra in self._extra:
            module.set_extra_state(extra)
        if self._too_large:
            warnings.warn(BUFFERS_TOO_LARGE.say(mib=self._too_large // 2**20))
        for (module, name), copy in self._copies.items():
            buffer = getattr(module, name)
            if buffer is None or (buffer.shape, buffer.dtype, buffer.device) != _kind(copy):
                setattr(module, name, copy.clone())
            elif not torch.equal(buffer, copy):  # one that is constant may be expanded, which takes no copy
                buffer.copy_(copy)

    @torch.no_grad()
    def follow(self, group: Group, source: int, *, takes: bool) -> None:
        """Have ranks for which the step has no samples, and whose forward pass did not run, take over what
        it has changed on rank `source`, such as the vectors of a spectral norm or a count of passes. All
        ranks take part. A buffer that was another there before, such as statistics, stays each node's own.

        Raises:
            GroupBroken: a member was lost meanwhile.
        """
        data = to_bytes(self._changes()) if group.rank == source else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([len(data)])
        group.broadcast(size, source)
        data = data if group.rank == source else torch.empty(int(size), dtype=torch.uint8)
        group.broadcast(data, source)
        theirs = from_bytes(data) if takes else {}
        for name, module, own in self._named() if theirs else ():
            before, after = theirs.get(name, (None, None))
            mine = module._buffers[own]
            if before is None or mine is None or _kind(mine.cpu()) != _kind(before):
                continue
            if torch.equal(mine.cpu(), before):
                setattr(module, own, after.to(mine.device))

    def _changes(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Buffers that this turn has changed, by name: as they were, and as they are."""
        found = {}
        for name, module, own in self._named():
            before, now = self._copies.get((module, own)), module._buffers[own]
            if before is None or now is None or (_kind(before) == _kind(now) and torch.equal(before, now)):
                continue
            found[name] = (before, now)
        return found

    def _named(self) -> Iterator[tuple[str, torch.nn.Module, str]]:
        """Every buffer's name, the same on all ranks, with its module and its name there."""
        for number, model in enumerate(self._models):
            for path, module in model.named_modules():
                yield from ((f"{number}.{path}.{own}", module, own) for own in module._buffers)


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device
