"""Chooses each group's begin in a generated log: groups are put under the wanted course of the pool."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bftrainer.traces.synthetic.profile import Floats, Ints, MachineProfile

PLACES = 64
"""Random places that are tried for a group."""


def placed(
    profile: MachineProfile,
    nodes: int,
    size: Ints,
    length: Ints,
    steps: int,
    room: Floats,
    rng: np.random.Generator,
    progress: Callable[[float], None],
) -> Ints:
    """The step at which each group begins.

    `room` is the wanted course of the pool, in bins over the log's `steps`; it is used up. Groups with
    most node-time come first. `progress` takes the share done, 0 to 1.
    """
    begin_with = max(0.0, 1 - profile.join_moments_per_h / profile.groups_per_h)
    end_with = max(0.0, 1 - profile.leave_moments_per_h / profile.groups_per_h)
    kind = rng.permutation(np.arange(size.size) / size.size)
    start = np.zeros(size.size, dtype=np.int64)
    starts: list[int] = []
    ends: list[int] = []
    bins = _Bins(room, nodes, steps)
    order = np.argsort(-size * length, kind="stable")
    for done, group in enumerate(order):
        if done % 1000 == 0:
            progress(done / size.size)
        stay = int(length[group])
        if starts and kind[group] < begin_with:
            places = np.array([starts[i] for i in rng.integers(len(starts), size=PLACES)])
        elif starts and kind[group] < begin_with + end_with:
            places = np.array([ends[i] for i in rng.integers(len(ends), size=PLACES)]) - stay
        else:
            places = rng.integers(steps, size=PLACES)
        best, possible = bins.best(places % steps, stay, int(size[group]))
        if not possible:
            best, _ = bins.best(rng.integers(steps, size=PLACES), stay, int(size[group]))
        bins.fill(best, stay, int(size[group]))
        start[group] = best
        starts.append(best)
        ends.append((best + stay) % steps)
    return start


class _Bins:
    """Room for nodes that is left over a circle of `steps`, in bins: under the wanted course, and at all."""

    def __init__(self, course: Floats, nodes: int, steps: int) -> None:
        self._room = course
        self._spare = np.full(course.size, float(nodes))
        self._width = steps / course.size

    def best(self, places: Ints, stay: int, nodes: int) -> tuple[int, bool]:
        """Place of `nodes` for `stay` steps, and whether the machine can spare them there.

        It is the first place where they fit under the course, else the one with most room under it of
        those with enough to spare, else the one with most to spare.
        """
        first = (places / self._width).astype(int)
        windows = (first[:, None] + np.arange(int(stay / self._width) + 2)) % self._room.size
        room = self._room[windows]
        fits = room.min(axis=1) >= nodes
        if fits.any():
            return int(places[np.argmax(fits)]), True
        spare = self._spare[windows].min(axis=1)
        possible = spare >= nodes
        if possible.any():
            return int(places[np.argmax(np.where(possible, room.mean(axis=1), -math.inf))]), True
        return int(places[np.argmax(spare)]), False

    def fill(self, start: int, stay: int, nodes: int) -> None:
        """Put `nodes` there from `start` on for `stay` steps."""
        first, last = start / self._width, (start + stay) / self._width
        bins = np.arange(int(first), math.ceil(last))
        share = np.minimum(bins + 1, last) - np.maximum(bins, first)
        where = bins % self._room.size
        np.subtract.at(self._room, where, nodes * share)  # what is held on average,
        np.subtract.at(self._spare, where, nodes)  # and what may be held at some moment
