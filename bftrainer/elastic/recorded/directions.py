"""Directions for one run of a rehearsal: where it is held, killed and cut, which noise it gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "REHEARSAL"
"""The environment variable that names the rehearsal's folder."""
DIRECTIONS, CUT, RECORD = "directions.json", "cut", "record"
"""Files in the folder of a run, and the folder of its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """Interventions in one run. Steps count from 1, over the whole training; ranks from 0.

    `holds`: after these steps all processes wait until the conductor releases them. `kills`: (step, rank) of
    processes that kill themselves after a step, each once. `kill_at_end`: rank 0 kills itself, once, when its
    script has ended after this many steps; 0: never. `noise`: "rounding" adds to gradients what another order
    of sums would; "seed" resets the random numbers when training begins. `least` and `most_s`: the first run
    is cut after `least` steps if it has then trained for `most_s`; `cut`: this run ends after this step.
    `costs`: steps' costs are noted, and nothing else.
    """

    holds: Sequence[int] = ()
    kills: Sequence[Sequence[int]] = ()
    kill_at_end: int = 0
    noise: str = ""
    least: int = 0
    most_s: float = 0.0
    cut: int | None = None
    costs: bool = False

    @classmethod
    def of(cls, folder: Path) -> Directions:
        """Those that stand in the folder of a run."""
        return cls(**json.loads((folder / DIRECTIONS).read_text(encoding="utf-8")))

    def write(self, folder: Path) -> None:
        """Write them into the folder of a run."""
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        (folder / DIRECTIONS).write_text(json.dumps(known), encoding="utf-8")


def release_of(folder: Path, step: int) -> Path:
    """The file that releases those who are held after a step."""
    return folder / f"release-{step}"


def held_of(folder: Path, step: int, rank: int) -> Path:
    """The file by which a rank says that it is held after a step."""
    return folder / f"held-{step}-{rank}"
