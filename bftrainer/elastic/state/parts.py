"""The script's additions to the training state: objects with `state_dict` and `load_state_dict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bftrainer.elastic.state.packing import StateError, pickle_skeleton, unpickle
from bftrainer.messages.state import PART_EMPTY, PART_NAME, PART_NOT_PLAIN, PART_WITHOUT_STATE

RESERVED = frozenset({"model", "optimizer", "scheduler", "scaler", "pace", "stepped"})
"""The run's own parts."""


def checked(parts: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts that a script gives, by name.

    Raises:
        TypeError, ValueError: one that cannot be kept, sent to newcomers or saved, with what to do instead.
    """
    for name, part in (parts or {}).items():
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            raise ValueError(PART_NAME.say(name=name, reserved=", ".join(sorted(RESERVED))))
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise TypeError(PART_WITHOUT_STATE.say(name=name, kind=type(part).__name__))
        if isinstance(part, torch.nn.Module) and not part.state_dict():
            raise TypeError(PART_EMPTY.say(name=name, kind=type(part).__name__))
        _check_values(f"part {name!r}", part)
    return dict(parts or {})


def plain_only(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The run's own parts, unless the state of an optimiser or scheduler could be neither sent to newcomers
    nor read from a checkpoint, as some keep another scheduler in it.

    Raises:
        TypeError: the first, and what it has in its state.
    """
    for name, part in parts.items():
        if name.partition(".")[0] in ("optimizer", "scheduler") and hasattr(part, "state_dict"):
            _check_values(f"{name}, a {type(part).__name__}", part)
    return parts


def _check_values(what: str, part: Any) -> None:
    tensors: list[torch.Tensor] = []
    try:
        unpickle(pickle_skeleton(part.state_dict(), tensors))
    except StateError as error:
        raise TypeError(PART_NOT_PLAIN.say(what=what, why=error.why)) from error


UNSAVED = "buffers that are not saved"
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
