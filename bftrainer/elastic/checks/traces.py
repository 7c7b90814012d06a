"""Traces of weights, step by step, and what two ranks' traces say of each other. Pure.

Ranks that average have the same weights again after every step, or at least now and then; those that train
each a model of its own never do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

WINDOW = 32
"""Consecutive steps to note."""
STARTS = (0, 100, 500)
PERIOD = 1_000
"""Windows begin after `STARTS` steps, and after each multiple of `PERIOD`: scripts that average every 50, 64,
100 or 500 steps do so within one."""
LOOKS = (WINDOW - 1, WINDOW + 17, 99)
"""Steps after a window's begin at which ranks are compared: others may be a little behind."""
FIRST = 2
"""The weights after one step may be the same by chance: adaptive optimizers move all by the learning rate."""
AT_END = 3
"""Steps of the first window that suffice where no more follow; otherwise it takes all of a window."""
APART = 1e-4
"""Weights that differ by more than this part of their value do not differ by rounding."""
CHANGED = 4
"""Noted weights that must change in a step for it to count."""
MOST_OPTIMIZERS = 4
MOST_VALUES = 64

Values = tuple[float, ...]


def window_of(steps: int) -> int | None:
    """The begin of the window that notes the weights after `steps` steps; None if none does."""
    start = _start(steps)
    return start if steps < start + WINDOW else None


def is_look(steps: int) -> bool:
    """True if ranks are compared after `steps` steps."""
    return steps - _start(steps) in LOOKS


def _start(steps: int) -> int:
    """The begin of the last window that has begun by then."""
    return max(*(own for own in STARTS if own <= steps), steps // PERIOD * PERIOD)


@dataclass(slots=True)
class Trace:
    """A few of the weights that one optimizer steps, after each of some steps.

    `layout` tells what these are, so that parts of one model are not compared with each other. The first
    window and the last are kept: ranks that do not wait for each other may never share a later one.
    """

    layout: str
    windows: dict[int, dict[int, Values]] = field(default_factory=dict)  # begin -> steps -> values

    def note(self, steps: int, values: Sequence[float]) -> None:
        """Note the weights after `steps` steps."""
        start = window_of(steps)
        if start is None:
            return
        if start not in self.windows:
            self.windows = {own: noted for own, noted in self.windows.items() if own == 0}
        self.windows.setdefault(start, {})[steps] = tuple(values)


@dataclass(frozen=True, slots=True)
class Apart:
    """Two ranks' weights that were not the same after any of some steps: one of them, after the last."""

    steps: int
    index: int
    mine: float
    theirs: float
    compared: int


def judged(mine: Trace, theirs: Trace, *, at_end: bool = False) -> Apart | bool | None:
    """Verdict on another rank's trace: how it is apart; True if it was the same; None if unknown.

    The last window that tells something counts. `at_end`: no steps follow.
    """
    found: Apart | bool | None = None
    if mine.layout == theirs.layout:
        for start in sorted(mine.windows.keys() & theirs.windows.keys()):
            enough = AT_END if at_end and not start else WINDOW - FIRST
            told = _window(mine.windows[start], theirs.windows[start], enough)
            found = found if told is None else told
    return found


def _window(mine: Mapping[int, Values], theirs: Mapping[int, Values], enough: int) -> Apart | bool | None:
    steps = sorted(mine.keys() & theirs.keys())
    steps = [each for each in steps if each >= FIRST]
    if not steps or any(len(mine[each]) != len(theirs[each]) for each in steps):
        return None
    for one, other in [*pairwise(steps), *pairwise(reversed(steps))]:
        moved = sum(a != b for a, b in zip(mine[one], mine[other], strict=True))
        if mine[other] == theirs[other] and moved >= min(CHANGED, len(mine[other])):
            return True
    return _apart(mine, theirs, steps) if len(steps) >= enough else None


def _apart(mine: Mapping[int, Values], theirs: Mapping[int, Values], steps: Sequence[int]) -> Apart | None:
    """True if most of the weights that have moved are apart after the last of these steps."""
    first, last = steps[0], steps[-1]
    pairs = list(zip(mine[last], theirs[last], strict=True))
    moved = [i for i, pair in enumerate(pairs) if pair != (mine[first][i], theirs[first][i])]
    off = {i: _share(*pairs[i]) for i in moved}
    wide = [i for i in moved if off[i] > APART]
    if not wide or 2 * len(wide) < len(moved):
        return None
    index = max(wide, key=lambda i: off[i])
    return Apart(last, index, *pairs[index], len(steps))


def _share(one: float, other: float) -> float:
    """Difference of two numbers relative to their size; 0 where one is no number."""
    if not (math.isfinite(one) and math.isfinite(other)):
        return 0.0
    return abs(one - other) / (max(abs(one), abs(other)) or 1.0)


def to_text(traces: Sequence[Trace], data: str) -> str:
    """A rank's message to the others: its traces, and a fingerprint of the data that it reads all of."""
    own = [
        [each.layout, {start: sorted(noted.items()) for start, noted in each.windows.items()}]
        for each in traces
    ]
    return json.dumps({"traces": own, "data": data})


def from_text(text: str | bytes) -> tuple[list[Trace], str]:
    """Read another rank's message; it may be a stranger's.

    Raises:
        ValueError: it makes no sense.
    """
    try:
        told: Any = json.loads(text)
        traces = [
            Trace(
                str(layout),
                {
                    int(start): {int(step): tuple(map(float, values[:MOST_VALUES])) for step, values in noted}
                    for start, noted in windows.items()
                },
            )
            for layout, windows in told["traces"][:MOST_OPTIMIZERS]
        ]
        return traces, str(told["data"])
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"no trace: {error}") from error
