"""Numbers that a script keeps in its own variables: counters, best values, averages."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch

MOST = 200
"""Numbers of a script to note."""


class Variables:
    """The variables of the script that runs in this process."""

    def __init__(self) -> None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._folder = str(Path(main).resolve().parent) if main else ""

    def numbers(self) -> dict[str, float]:
        """The numbers in them now, by name: as they are, or in attributes of objects of the script's own."""
        found: dict[str, float] = {}
        for namespace in self._namespaces():
            for name, value in _public(namespace):
                for key, number in _numbers(name, value, self._is_own):
                    if len(found) < MOST:
                        found.setdefault(key, number)
        return found

    def contents(self) -> dict[str, float]:
        """The numbers, and of models and tensors the sums of their elements' sizes."""
        found = self.numbers()
        for namespace in self._namespaces():
            for name, value in _public(namespace):
                if isinstance(value, torch.nn.Module):
                    found.setdefault(name, sum(_size(each) for each in value.state_dict().values()))
                elif isinstance(value, torch.Tensor):
                    found.setdefault(name, _size(value))
        return found

    def _namespaces(self) -> Iterator[Mapping[str, Any]]:
        main = sys.modules.get("__main__")
        if main is not None:
            yield vars(main)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__name__") != "__main__" and not self._is_in(frame.f_code.co_filename):
                frame = frame.f_back
                continue
            if frame.f_locals is not frame.f_globals:
                yield frame.f_locals
            frame = frame.f_back

    def _is_in(self, file: str) -> bool:
        return bool(self._folder) and "site-packages" not in file and file.startswith(self._folder)

    def _is_own(self, kind: type) -> bool:
        module = sys.modules.get(kind.__module__)
        return kind.__module__ == "__main__" or self._is_in(getattr(module, "__file__", None) or "")


def _public(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in namespace.items() if name[:1] != "_" and name != "self"]


def _numbers(name: str, value: Any, is_own: Any) -> Iterator[tuple[str, float]]:
    if type(value) in (int, float):
        yield name, value if math.isfinite(value) else math.copysign(1e308, value)
    elif isinstance(value, list):
        yield f"len({name})", len(value)
    elif isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        yield f"{name}.last_epoch", value.last_epoch
    elif is_own(type(value)) and isinstance(getattr(value, "__dict__", None), dict):
        for inner, each in _public(vars(value)):
            if type(each) in (int, float) and math.isfinite(each):
                yield f"{name}.{inner}", each


def _size(value: Any) -> float:
    if not isinstance(value, torch.Tensor) or value.is_meta:
        return 0.0
    found = value.detach().to(torch.float64).abs().sum().item()
    return found if math.isfinite(found) else 1e308
