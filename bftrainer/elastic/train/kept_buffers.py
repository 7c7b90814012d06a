"""Buffers as they were when a turn of the loop began: a pass whose step is lost leaves no trace in them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch

from bftrainer.elastic import warned
from bftrainer.elastic.train.trained import Trained

SMALL = 64 * 2**20
"""Bytes. So many may always be kept; more, if the parameters have as many."""
TOLD = (
    "the models' buffers have {mib} MiB, more than their parameters, so that they are not kept from turn to "
    "turn. A node was lost in a step: what its forward pass has changed in buffers stays, and it comes again"
)


class KeptBuffers:
    """Copies of the models' buffers, such as the statistics of normalisation layers, and of what layers keep
    by `get_extra_state`."""

    def __init__(self, trained: Trained) -> None:
        self._models = list(trained.models.values())
        self._copies: dict[tuple[torch.nn.Module, str], torch.Tensor] = {}
        self._extra: list[tuple[torch.nn.Module, Any]] = []
        self._too_large = 0  # bytes

    @torch.no_grad()
    def begin(self, *, may_be_lost: bool) -> None:
        """A turn begins. Without other members its step cannot be lost, and nothing is kept."""
        found = self._found() if may_be_lost else {}
        size = sum(buffer.nbytes for buffer in found.values())
        parameters = (
            sum(p.nbytes for model in self._models for p in model.parameters()) if size > SMALL else 0
        )
        self._too_large = size if size > max(SMALL, parameters) else 0
        before, self._copies = self._copies, {}
        self._extra = [(each, deepcopy(each.get_extra_state())) for each in self._with_extra(may_be_lost)]
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
            warned.warn(TOLD.format(mib=self._too_large // 2**20), stacklevel=2)
        for (module, name), copy in self._copies.items():
            buffer = getattr(module, name)
            if buffer is None or (buffer.shape, buffer.dtype, buffer.device) != _kind(copy):
                setattr(module, name, copy.clone())
            elif not torch.equal(buffer, copy):  # one that is constant may be expanded, which takes no copy
                buffer.copy_(copy)

    def _with_extra(self, may_be_lost: bool) -> Iterator[torch.nn.Module]:
        for model in self._models if may_be_lost else ():
            for module in model.modules():
                if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
                    yield module

    def _found(self) -> dict[tuple[torch.nn.Module, str], torch.Tensor]:
        return {
            (module, name): buffer
            for model in self._models
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if buffer.layout == torch.strided
        }


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device
