"""The figures that a script reports: the latest of each name, and not of more names than the daemon keeps.

And what it counts: steps, samples and epochs.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.loop import TOO_MANY_FIGURES, WHOLE_TRAINING
from bftrainer.messages.ranks import COUNTS_BACK, NO_COUNT

MAX_NAME = 100
"""The longest name, in characters; longer ones are cut."""
MOST = 10**15
"""The most samples that a report may have."""


class Figures(dict[str, float]):
    """Name -> latest value, of the first `most` names. Of further ones the script's log tells once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._told = most, False

    def keep(self, figures: Mapping[str, float]) -> None:
        """Take in what the script has reported."""
        for full_name, value in figures.items():
            name = full_name[:MAX_NAME]
            if name in self or len(self) < self._most:
                self[name] = float(value)
            elif not self._told:
                self._told = True
                note_warning(TOO_MANY_FIGURES.say(name=name, most=self._most))


def whole_training(samples: int | None) -> int | None:
    """The samples of a whole training as a report has them. None: not known, or more than a report may have,
    as of a training that is not meant to end by itself.

    Raises:
        ValueError: no whole number from 1 on.
    """
    if samples is None:
        return None
    try:
        count = operator.index(samples)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(WHOLE_TRAINING.say(samples=samples))
    return count if count <= MOST else None


def counts(**given: float) -> dict[str, int]:
    """Counts as a report has them, by name: a whole number may come as a float, or as one of NumPy.

    Raises:
        ValueError: another number, or none.
    """
    found = {}
    for name, value in given.items():
        try:
            found[name] = int(value)
            is_count = found[name] == value and value >= 0
        except (TypeError, ValueError, OverflowError):
            is_count = False
        if not is_count:
            raise ValueError(NO_COUNT.say(name=name, value=value))
    return found


class CountSpeed:
    """Speed of one membership. A script need not count after every step: the speed is that between two
    moments at which the count of samples went up, and stays so until the next."""

    def __init__(self) -> None:
        self._last: dict[str, int] | None = None
        self._since = 0.0  # when the count of samples has changed last
        self._rate: float | None = None
        self._warned: set[str] = set()

    def rate(self, step: int, samples: int, now: float) -> float | None:
        """Return samples/s, with the counts of `now`; None: not known. Warn once of one that goes back."""
        before, self._last = self._last, {"steps": step, "samples": samples}
        for name, count in self._last.items() if before else ():
            if before and count < before[name] and name not in self._warned:
                self._warned.add(name)
                note_warning(COUNTS_BACK.say(name=name, before=before[name], now=count))
        gained = samples - before["samples"] if before else 0
        if gained:
            self._rate = gained / max(now - self._since, 1e-3) if gained > 0 else None
        if gained or not before:
            self._since = now
        return self._rate
