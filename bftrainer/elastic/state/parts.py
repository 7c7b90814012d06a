"""What a script adds to the training state: objects of its own with `state_dict` and `load_state_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bftrainer.elastic.state.packing import StateError, pickle_skeleton, unpickle

RESERVED = frozenset({"model", "optimizer", "scheduler", "scaler", "pace", "stepped"})
"""The run's own parts."""


def checked(parts: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts that a script gives, by name.

    Raises:
        TypeError, ValueError: one that cannot be kept, sent to newcomers or saved, with what to do instead.
    """
    for name, part in (parts or {}).items():
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            raise ValueError(
                f"part {name!r}: a name is a word such as 'ema', and none of {', '.join(sorted(RESERVED))}"
            )
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise TypeError(
                f"part {name!r}, a {type(part).__name__}, has no state_dict() and load_state_dict(): write "
                "both, the first returns what the second takes, as a dict of plain values and tensors"
            )
        _check_values(name, part.state_dict())
    return dict(parts or {})


def _check_values(name: str, state: Any) -> None:
    tensors: list[torch.Tensor] = []
    try:
        unpickle(pickle_skeleton(state, tensors))
    except StateError as error:
        raise TypeError(
            f"part {name!r}: its state_dict() is not of plain values and tensors. {error.__cause__}".split(
                "\n"
            )[0]
        ) from error
