"""The position of a training in its data, part of the training state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Progress of training: steps taken, samples used, and the place in an epoch's permutation.

    `gained` is what steps with larger batches than the initial one count beyond one each, where the batch
    adapts.
    """

    step: int = 0
    samples: int = 0
    epoch: int = 0
    cursor: int = 0
    gained: float = 0.0

    @property
    def progress(self) -> float:
        """The steps with the initial batch that training is worth: all steps taken where nothing adapts."""
        return self.step + self.gained
