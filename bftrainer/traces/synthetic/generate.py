"""Generates logs of idle nodes that are like those of a real machine.

The model. Nodes join and leave in *groups*: so many nodes that become idle at one moment and are taken
at another. A profile says how many groups an hour there are, how large they are, how long they stay,
how many moments of joining and leaving they share, and how large the pool is how much of the time.

1. Sizes and lengths are drawn by strata: every log of a profile, long or short, has the profile's
   distributions, only their order is random. Lengths are laid out along the quantile axis weighted by
   group size, as what is fitted is the distribution of fragments, not of groups.
2. The wanted course of the pool is a Gaussian process that forgets within `relax_h`, its ranks mapped
   to the distribution of pool sizes.
3. Groups are put under that course, those with most node-time first: each looks at some random places
   and takes the first where it fits, else the one with most room that the machine has nodes for. A
   group has both its moments for itself, or begins with another one, or ends with another one, in the
   shares that make the numbers of moments right.
4. Nodes are given to the groups in turn, the one that was busy longest first.

Time is a circle: what reaches beyond the end of the log stands at its beginning.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bftrainer.errors import BftrainerError
from bftrainer.traces.intervals import Interval
from bftrainer.traces.synthetic.onoff import names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

HOUR = 3600.0
INF = float("inf")
PLACES = 64
"""So many random places a group looks at."""
BINS_PER_HOUR = 30
"""Resolution of the pool's course while groups are put under it."""
MOST_BINS = 300_000


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A quantile function: the logarithm of the value is linear between (share, value)."""

    points: tuple[tuple[float, float], ...]

    def integral(self, share: Floats) -> Floats:
        """The function's integral from 0 to each share, exactly."""
        at = np.array([point[0] for point in self.points])
        value = np.array([point[1] for point in self.points])
        slope = np.log(value[1:] / value[:-1]) / np.diff(at)
        flat = slope == 0
        safe = np.where(flat, 1.0, slope)

        def up_to(segment: Ints, width: Floats) -> Floats:
            rising = np.expm1(safe[segment] * width) / safe[segment]
            found: Floats = value[segment] * np.where(flat[segment], width, rising)
            return found

        every = np.arange(at.size - 1)
        before = np.concatenate([[0.0], np.cumsum(up_to(every, np.diff(at)))])
        segment = np.clip(np.searchsorted(at, share, side="right") - 1, 0, at.size - 2)
        total: Floats = before[segment] + up_to(segment, share - at[segment])
        return total

    def share(self, value: Floats) -> Floats:
        """How much lies below each value."""
        at, known = zip(*self.points, strict=True)
        found: Floats = np.interp(np.log(value), np.log(known), at)
        return found

    def means(self, edges: Floats) -> Floats:
        """The mean value between each two neighbouring shares."""
        found: Floats = np.diff(self.integral(edges)) / np.diff(edges)
        return found


@dataclass(frozen=True, slots=True)
class Profile:
    """What a machine's idle nodes are like; fitted by `benchmarks/fit_profiles.py`.

    Attributes:
        nodes: Nodes of the machine that it was fitted to; rates scale with the nodes of the log.
        step_s: All times are multiples of this.
        groups_per_h: Groups an hour.
        join_moments_per_h, leave_moments_per_h: Moments an hour that groups begin and end at.
        group_nodes: Sizes of groups.
        fragment_s: Lengths of fragments (s).
        pool_share: The pool's share of the machine, over time.
        size_matters: Correlation of the logarithms of a group's size and length, -1 to 1.
        most_node_h: Node-hours that no group has more of.
        relax_h: The pool's size is another one after so many hours.
    """

    nodes: int
    step_s: int
    groups_per_h: float
    join_moments_per_h: float
    leave_moments_per_h: float
    group_nodes: Quantiles
    fragment_s: Quantiles
    pool_share: Quantiles
    size_matters: float
    most_node_h: float
    relax_h: float


@dataclass(frozen=True, slots=True)
class _Groups:
    """Sizes in nodes; starts and lengths in steps, a start below `steps`, an end perhaps above."""

    size: Ints
    start: Ints
    length: Ints
    steps: int


def generate(
    profile: Profile,
    nodes: int,
    hours: float,
    seed: int,
    progress: Callable[[float], None] = lambda done: None,
) -> list[Interval]:
    """The idle intervals of `nodes` nodes from time 0 for `hours`, in order of their start.

    The same arguments give the same log. Intervals that reach the end of the log end there.

    Raises:
        BftrainerError: the log is shorter than a step.
    """
    steps = int(hours * HOUR / profile.step_s)
    if steps < 1:
        raise BftrainerError(f"--hours {hours:g}: shorter than the profile's step of {profile.step_s} s")
    rng = np.random.default_rng(seed)
    size = _sizes(profile, nodes, steps * profile.step_s / HOUR, rng)
    length = np.maximum(1, np.rint(_lengths(profile, size, rng) / profile.step_s)).astype(np.int64)
    room = _course(profile, nodes, steps, rng)
    start = _placed(profile, nodes, size, length, steps, room, rng, progress)
    return list(_intervals(_Groups(size, start, length, steps), nodes, profile.step_s))


def _sizes(profile: Profile, nodes: int, hours: float, rng: np.random.Generator) -> Ints:
    """How many nodes each group has; one that is too large for the machine comes in parts."""
    count = max(1, round(profile.groups_per_h * hours * nodes / profile.nodes))
    exact = profile.group_nodes.means(np.linspace(0.0, 1.0, count + 1))
    total = np.rint(np.cumsum(exact) + rng.random())  # rounded so that the sum stays what it is
    wanted = np.maximum(1, np.diff(total, prepend=0.0))
    largest = max(1, int(profile.group_nodes.points[-1][1] * nodes / profile.nodes))
    parts = np.ceil(wanted / largest)
    size = np.repeat(np.rint(wanted / parts), parts.astype(int)).astype(np.int64)
    return rng.permutation(size)


def _lengths(profile: Profile, size: Ints, rng: np.random.Generator) -> Floats:
    """How long each group stays (s): the share of the quantile axis that its nodes take, averaged."""
    log = np.log(size)
    spread = log.std() or 1.0
    own = math.sqrt(1 - profile.size_matters**2)
    score = profile.size_matters * (log - log.mean()) / spread + own * rng.standard_normal(size.size)
    rank = np.argsort(np.argsort(score)) / size.size
    order = np.argsort(rank * profile.fragment_s.share(profile.most_node_h * HOUR / size))
    edges = np.concatenate([[0.0], np.cumsum(size[order])])
    length = np.empty(size.size)
    length[order] = profile.fragment_s.means(edges / edges[-1])
    return length


def _course(profile: Profile, nodes: int, steps: int, rng: np.random.Generator) -> Floats:
    """The wanted number of nodes in the pool, in bins of equal width."""
    hours = steps * profile.step_s / HOUR
    bins = int(min(MOST_BINS, max(2, hours * BINS_PER_HOUR), steps))
    turn = 2 * math.pi * np.arange(bins // 2 + 1) * profile.relax_h / hours
    noise = np.fft.rfft(rng.standard_normal(bins)) / (1 + turn**2)
    ranks = np.argsort(np.argsort(np.fft.irfft(noise, bins)))
    found: Floats = nodes * profile.pool_share.means(np.linspace(0.0, 1.0, bins + 1))[ranks]
    return found


def _placed(
    profile: Profile,
    nodes: int,
    size: Ints,
    length: Ints,
    steps: int,
    room: Floats,
    rng: np.random.Generator,
    progress: Callable[[float], None],
) -> Ints:
    """When each group begins. `room` is used up."""
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
    """What room for nodes is left over a circle of `steps`, in bins: under the wanted course, and at all."""

    def __init__(self, course: Floats, nodes: int, steps: int) -> None:
        self._room = course
        self._spare = np.full(course.size, float(nodes))
        self._width = steps / course.size

    def best(self, places: Ints, stay: int, nodes: int) -> tuple[int, bool]:
        """Where `nodes` should stay for `stay` steps, and whether the machine has so many to spare there.

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
            return int(places[np.argmax(np.where(possible, room.mean(axis=1), -INF))]), True
        return int(places[np.argmax(spare)]), False

    def fill(self, start: int, stay: int, nodes: int) -> None:
        """Put `nodes` there from `start` on for `stay` steps."""
        first, last = start / self._width, (start + stay) / self._width
        bins = np.arange(int(first), math.ceil(last))
        share = np.minimum(bins + 1, last) - np.maximum(bins, first)
        where = bins % self._room.size
        np.subtract.at(self._room, where, nodes * share)  # what is held on average,
        np.subtract.at(self._spare, where, nodes)  # and what may be held at some moment


def _intervals(groups: _Groups, nodes: int, step_s: int) -> Iterator[Interval]:
    """Give the groups nodes. A group that finds too few, which is rare, takes what there is."""
    stays = sorted(_unrolled(groups))
    busy = deque(sorted(names(nodes)))
    idle: list[tuple[int, int, list[str]]] = []
    for number, (start, end, size) in enumerate(stays):
        while idle and idle[0][0] < start:  # who leaves now does not join now
            busy.extend(heapq.heappop(idle)[2])
        taken = [busy.popleft() for _ in range(min(size, len(busy)))]
        if taken:
            heapq.heappush(idle, (end, number, taken))
            first, last = float(start * step_s), float(end * step_s)
            for node in taken:
                yield Interval(first, last, node)


def _unrolled(groups: _Groups) -> Iterator[tuple[int, int, int]]:
    """(start, end, size) within the log, from the circle."""
    for start, length, size in zip(
        groups.start.tolist(), groups.length.tolist(), groups.size.tolist(), strict=True
    ):
        turns, rest = divmod(length, groups.steps)
        yield from [(0, groups.steps, size)] * turns
        if rest:
            yield start, min(start + rest, groups.steps), size
        if start + rest > groups.steps:
            yield 0, start + rest - groups.steps, size
