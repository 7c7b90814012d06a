"""Deviations of a run from the one in peace: what is not the same, and where it shows first."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Aspect(StrEnum):
    """Aspects to compare, in the order in which differences explain each other."""

    END = "end"
    RANKS = "ranks"
    STEPS = "steps"
    PROGRESS = "progress"
    SAMPLES = "samples"
    SETTINGS = "settings"
    GRADIENTS = "gradients"
    WEIGHTS = "weights"
    STATE = "optimizer state"
    FIGURES = "figures"
    FILES = "files"
    VARIABLES = "variables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One difference. `name` is a tensor, a file, a figure or a variable; `facts` are for its explanation.

    `is_fault` is False of what is only worth a note.
    """

    aspect: Aspect
    run: str
    text: str
    name: str = ""
    step: int | None = None
    apart: float | None = None
    allowed: float | None = None
    is_fault: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
