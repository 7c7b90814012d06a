"""The figures that a script reports: the latest of each name, and not of more names than the daemon keeps."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.loop import TOO_MANY_FIGURES, WHOLE_TRAINING

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
