"""The position of a training in its data, part of the training state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far training is: steps taken, samples used, and where in which epoch's permutation."""

    step: int = 0
    samples: int = 0
    epoch: int = 0
    cursor: int = 0
