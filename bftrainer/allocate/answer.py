"""What a solver is asked to keep to, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

INFINITE = 1e20
"""Solvers mean by a bound above this that they know none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a solver may stop: after `time_s`, at a relative `gap`, or, HiGHS only, when it has found nothing
    better for `patience_s`."""

    time_s: float
    gap: float
    patience_s: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A solver's result. If it has `found` a solution, the model's variables have its values."""

    optimal: bool
    found: bool
    bound: float | None


def finite(bound: float | None) -> float | None:
    """A solver's bound; None if it knows none."""
    return float(bound) if bound is not None and abs(bound) < INFINITE else None
