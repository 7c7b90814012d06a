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
    """Of one membership. A script need not count after every step: the speed is that between two moments at
    which the count went up, and stays so until the next."""

    def __init__(self) -> None:
        self._since: tuple[float, int] | None = None  # when the count has changed last, and to what
        self._rate: float | None = None
        self._has_warned = False

    def rate(self, samples: int, now: float) -> float | None:
        """Return samples/s, with the count of `now`; None: not known. Warn once of one that goes back."""
        at, before = self._since or (now, samples)
        if samples > before:
            self._rate = (samples - before) / max(now - at, 1e-3)
        elif samples < before:
            self._rate = None
            if not self._has_warned:
                note_warning(COUNTS_BACK.say(before=before, samples=samples))
            self._has_warned = True
        if self._since is None or samples != before:
            self._since = now, samples
        return self._rate
