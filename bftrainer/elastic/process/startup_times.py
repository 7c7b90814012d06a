"""Times of this process's start-up: when it reached which point on its way into training.

Times are of the monotonic clock, which the agent and its workers share. Points that a process did not pass,
such as those of the warm process where it was started in another way, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

from bftrainer.elastic.process.warnings import note

PARTS = {
    "told": "its agent began to start it",
    "warm": "the warm process was there, with its imports",
    "process": "the process was there",
    "run": "its script called elastic.Run",
    "ready": "its script came to its loop",
    "published": "it was a member",
    "connected": "its group was connected",
    "entered": "it had entered the group",
    "state": "it had the training state",
    "step": "it had taken its first step",
}
"""The points in their order. In `parts`, each stands for the time since the one before."""

_at: dict[str, float] = {}


def begin(times: Mapping[str, float]) -> None:
    """Take over the points that the agent knows of."""
    _at.update({point: at for point, at in times.items() if point in PARTS})


def reached(point: str) -> None:
    """This process has reached a point. Only the first time counts."""
    _at.setdefault(point, time.monotonic())


def arrived(step: int) -> None:
    """This process has taken its share of a step. The first time, say in its log how long that took."""
    if "step" not in _at:
        reached("step")
        note(f"takes part since step {step}, {told()}")


def parts() -> dict[str, float]:
    """The seconds that it took to each point from the one before, as far as it has come."""
    there = [point for point in PARTS if point in _at]
    return {point: _at[point] - _at[before] for before, point in pairwise(there)}


def told() -> str:
    """The same as text, with their sum."""
    took = parts()
    each = ", ".join(f"{point} {seconds:.3f}" for point, seconds in took.items())
    return f"{sum(took.values()):.3f} s after it was started ({each})"
