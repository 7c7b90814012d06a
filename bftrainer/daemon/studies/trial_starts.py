"""Learns how long trials take from getting nodes to training: a forecast counts it for each run left."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median

from bftrainer.model.reports import Progress

KEPT = 32
"""Latest starts of a study that are looked at."""


@dataclass(slots=True)
class TrialStarts:
    """The latest starts of each study's trials, as this daemon has seen them."""

    _placed: dict[int, float] = field(default_factory=dict)  # trainer -> when it got nodes
    _trains: set[int] = field(default_factory=set)
    _found: dict[int, deque[float]] = field(default_factory=dict)  # study -> seconds

    def placed(self, trainer: int, now: float) -> None:
        """A trainer holds nodes; it got them now, unless it held some before."""
        self._placed.setdefault(trainer, now)

    def trains(self, study: int, report: Progress, begun: int) -> None:
        """A trainer that went on from `begun` samples has reported. Its first report ends its start: what it
        has trained until then is taken off."""
        at = self._placed.get(report.trainer)
        if at is None or report.trainer in self._trains or report.samples <= begun:
            return
        self._trains.add(report.trainer)
        trained = (report.samples - begun) / report.rate if report.rate else 0.0
        self._found.setdefault(study, deque(maxlen=KEPT)).append(max(0.0, report.time - at - trained))

    def over(self, trainer: int) -> None:
        """A trainer has ended."""
        self._placed.pop(trainer, None)
        self._trains.discard(trainer)

    def forget(self, unfinished: Collection[int]) -> None:
        """Forget all but these studies."""
        for study in [study for study in self._found if study not in unfinished]:
            del self._found[study]

    def typical_s(self, study: int) -> float | None:
        """The median of a study's starts; None: there is none yet."""
        found = self._found.get(study)
        return median(found) if found else None
