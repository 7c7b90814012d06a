"""Buffers that a module leaves out of its `state_dict()`, and that training changes all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

PART = "buffers that are not saved"
"""The name of its part of the training state; no part of a script can have it."""


class UnsavedBuffers:
    """Buffers registered with `persistent=False`, once they have changed; a part of the training state.

    Most never change, such as masks: these are neither sent nor saved.

    Args:
        parts: the parts of the training state by name; the modules among them count.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self._models = {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}
        self._at_start = {
            name: (buffer, buffer._version) for name, _, _, buffer in self._found() if buffer is not None
        }

    def state_dict(self) -> dict[str, Any]:
        """Those that have changed since the start, by the names of model, layer and buffer."""
        return {
            name: buffer
            for name, _, _, buffer in self._found()
            if buffer is not None and self._has_changed(name, buffer)
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them over."""
        for name, layer, own, buffer in self._found():
            if (value := state_dict.get(name)) is None:
                continue
            setattr(layer, own, value.clone() if buffer is None else value.clone().to(buffer.device))

    def _has_changed(self, name: str, buffer: torch.Tensor) -> bool:
        before, version = self._at_start.get(name, (None, 0))
        return before is not buffer or buffer._version != version

    def _found(self) -> Iterator[tuple[str, torch.nn.Module, str, torch.Tensor | None]]:
        for model, whole in self._models.items():
            for path, layer in whole.named_modules():
                for own in sorted(layer._non_persistent_buffers_set):
                    name = ".".join(filter(None, (model, path, own)))
                    yield name, layer, own, layer._buffers.get(own)
