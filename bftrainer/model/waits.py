"""What the starts of main jobs say together: the waits of those that we affected, and of others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from bftrainer.model.main_jobs import Affected, MainStart

STARTED = frozenset({Affected.CLAIMED, Affected.TAKEN})
"""How jobs that have started can have been affected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How many jobs there are, and what they waited (s); None where there is none."""

    count: int = 0
    median_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    most_s: float | None = None


def waits(values: Iterable[float]) -> Waits:
    """The quantiles of some waits."""
    found = sorted(values)
    if not found:
        return Waits()
    return Waits(
        count=len(found),
        median_s=quantile(found, 0.5),
        p90_s=quantile(found, 0.9),
        p99_s=quantile(found, 0.99),
        most_s=found[-1],
    )


def quantile(in_order: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return in_order[max(0, ceil(share * len(in_order) - 1e-9) - 1)]


def affected(starts: Iterable[MainStart]) -> list[MainStart]:
    """Those that started after nodes of ours were claimed for them, or on nodes that were ours."""
    return [start for start in starts if start.affected in STARTED]


def others(starts: Iterable[MainStart]) -> list[MainStart]:
    """Those that no node of ours was in the way of: they tell what the scheduler itself takes."""
    return [start for start in starts if start.affected is Affected.NO]
