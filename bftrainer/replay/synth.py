"""A generated idle-interval log: what `bftrainer daemon` plays where no real log is given.

Every node alternates between idle and busy for exponentially distributed times, on its own, from a
seed: the same arguments give the same log.
"""

from __future__ import annotations

import random

from bftrainer.replay.intervals import Interval


def generate(
    nodes: int, duration_s: float, *, seed: int = 0, idle_s: float = 25.0, busy_s: float = 12.0
) -> list[Interval]:
    """Intervals of nodes n01, n02, ... from time 0 on, ordered by start.

    `idle_s` and `busy_s` are means. The first node starts idle, so that a demonstration shows
    something at once; the others are in the middle of either state.
    """
    found: list[Interval] = []
    width = max(2, len(str(nodes)))
    for number in range(1, nodes + 1):
        rng = random.Random(f"{seed}/{number}")  # noqa: S311  not for secrets
        idle = number == 1 or rng.random() < idle_s / (idle_s + busy_s)
        t = 0.0
        while t < duration_s:
            length = max(1.0, rng.expovariate(1 / (idle_s if idle else busy_s)))
            if idle:
                found.append(Interval(t, t + length, f"n{number:0{width}}"))
            t, idle = t + length, not idle
    return sorted(found, key=lambda interval: (interval.start, interval.node))
