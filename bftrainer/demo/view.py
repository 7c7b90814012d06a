"""One look at a demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A sentence of the demonstration: of the act with this number (0: before the first), `at_s` after the
    first look."""

    at_s: float
    act: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DemoView:
    """The daemon's answers to `pool`, `trainers`, `pauses` and `events`, `elapsed_s` after the first of them,
    at the time `now` (Unix seconds). `told` is all that was said so far, and `acts_left` are the
    titles of the acts that are not over."""

    elapsed_s: float
    pool: dict[str, Any]
    trainers: list[dict[str, Any]]
    pauses: list[dict[str, Any]]
    events: tuple[dict[str, Any], ...] = ()
    now: float = 0.0
    told: tuple[Told, ...] = ()
    acts_left: tuple[str, ...] = ()
