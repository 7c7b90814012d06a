"""The rescales of one trainer, from what its members told of their pauses. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict

SHOWN = 10
"""Rescales shown of a trainer, at most."""
MOST_ROWS = 1000
"""Pauses that are read for that, at most."""
NUMBERS = ("time", "generation", "size", "step", "pause_s", "lost_steps")


class RescaleView(TypedDict):
    """One rescale. `pause_s`: the longest that a member stood still; `told`: how many members told of their
    pause (newcomers do not)."""

    time: float
    generation: int
    kind: str
    size: int
    step: int
    pause_s: float
    lost_steps: int
    told: int


def rows_for(n_max: int) -> int:
    """Return the number of pauses to read of a trainer that runs on at most `n_max` nodes."""
    return min((SHOWN + 1) * n_max, MOST_ROWS)


def rescales(pauses: Sequence[dict[str, Any]], asked: int) -> list[RescaleView]:
    """The last `SHOWN` rescales in these rows of the table of pauses, oldest first, of which at most `asked`
    were read: then members of the first rescale may be missing, and it is left out.

    A node that tells a further pause of the same membership, as where its runtime met twice in it, tells of a
    further rescale. Rows of a damaged database that hold no numbers are left out.
    """
    told: Counter[tuple[int, str]] = Counter()
    found: dict[tuple[int, int], RescaleView] = {}
    for row in pauses:
        if not all(isinstance(row[name], int | float) for name in NUMBERS):
            continue
        told[row["generation"], row["node"]] += 1
        key = row["generation"], told[row["generation"], row["node"]]
        before = found.get(key)
        found[key] = {
            "time": row["time"],
            "generation": row["generation"],
            "kind": row["kind"],  # the last to tell knows best: a loss may come to light meanwhile
            "size": row["size"],
            "step": row["step"],
            "pause_s": max(row["pause_s"], before["pause_s"] if before else 0.0),
            "lost_steps": max(row["lost_steps"], before["lost_steps"] if before else 0),
            "told": (before["told"] if before else 0) + 1,
        }
    whole = list(found.values())
    return (whole[1:] or whole if len(pauses) >= asked else whole)[-SHOWN:]
