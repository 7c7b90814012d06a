"""One look at a demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DemoView:
    """The daemon's answers to `pool`, `trainers` and `pauses`, `elapsed_s` after the first of them."""

    elapsed_s: float
    pool: dict[str, Any]
    trainers: list[dict[str, Any]]
    pauses: list[dict[str, Any]]
