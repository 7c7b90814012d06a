"""The figures that a script reports: the latest of each name, and not of more names than the daemon keeps."""

from __future__ import annotations

from collections.abc import Mapping

from bftrainer.elastic.note import note

MAX_NAME = 100
"""The longest name, in characters; longer ones are cut."""


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
                note(
                    f"{name!r} and further new names of figures are not reported: a trainer has "
                    f"{self._most} at most (max_metrics). Use one name for a figure at all steps: bftrainer "
                    "keeps its course."
                )
