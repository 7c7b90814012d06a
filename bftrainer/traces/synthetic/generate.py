"""Generates logs of idle nodes that are like those of a real machine.

The model. Nodes join and leave in *groups*: nodes that become idle at one moment and are taken at
another. A profile says how many groups per hour there are, how large they are, how long they stay, how many
moments of joining and leaving they share, and how the sizes of the pool are distributed over time.

1. Sizes and lengths are drawn by strata: every log of a profile, long or short, has the profile's
   distributions, only their order is random. Lengths are laid out along the quantile axis weighted by
   group size, as what is fitted is the distribution of fragments, not of groups.
2. The wanted course of the pool is a Gaussian process with correlation time `relax_h`, its ranks mapped
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

import numpy as np

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.tables import WRONG_VALUE
from bftrainer.traces.intervals import Interval
from bftrainer.traces.synthetic.onoff import names
from bftrainer.traces.synthetic.placing import placed
from bftrainer.traces.synthetic.profile import Floats, Ints, MachineProfile

HOUR = 3600.0
BINS_PER_HOUR = 30
"""Resolution of the pool's wanted course."""
MOST_BINS = 300_000
"""A coarser resolution is used for logs that would have more."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """Sizes in nodes; starts and lengths in steps, a start below `steps`, an end perhaps above."""

    size: Ints
    start: Ints
    length: Ints
    steps: int


def generate(
    profile: MachineProfile,
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
        wanted = f"more: the profile has steps of {profile.step_s} s"
        raise BftrainerError(WRONG_VALUE.say(name="--hours", given=f"{hours:g}", wanted=wanted))
    rng = np.random.default_rng(seed)
    size = _sizes(profile, nodes, steps * profile.step_s / HOUR, rng)
    length = np.maximum(1, np.rint(_lengths(profile, size, rng) / profile.step_s)).astype(np.int64)
    room = _course(profile, nodes, steps, rng)
    start = placed(profile, nodes, size, length, steps, room, rng, progress)
    return list(_intervals(_Groups(size, start, length, steps), nodes, profile.step_s))


def _sizes(profile: MachineProfile, nodes: int, hours: float, rng: np.random.Generator) -> Ints:
    """Number of nodes of each group; one that is too large for the machine comes in parts."""
    count = max(1, round(profile.groups_per_h * hours * nodes / profile.nodes))
    exact = profile.group_nodes.means(np.linspace(0.0, 1.0, count + 1))
    total = np.rint(np.cumsum(exact) + rng.random())  # rounded so that the sum stays what it is
    wanted = np.maximum(1, np.diff(total, prepend=0.0))
    largest = max(1, int(profile.group_nodes.points[-1][1] * nodes / profile.nodes))
    parts = np.ceil(wanted / largest)
    size = np.repeat(np.rint(wanted / parts), parts.astype(int)).astype(np.int64)
    return rng.permutation(size)


def _lengths(profile: MachineProfile, size: Ints, rng: np.random.Generator) -> Floats:
    """Duration of each group (s): the share of the quantile axis that its nodes take, averaged."""
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


def _course(profile: MachineProfile, nodes: int, steps: int, rng: np.random.Generator) -> Floats:
    """The wanted number of nodes in the pool, in bins of equal width."""
    hours = steps * profile.step_s / HOUR
    bins = int(min(MOST_BINS, max(2, hours * BINS_PER_HOUR), steps))
    turn = 2 * math.pi * np.arange(bins // 2 + 1) * profile.relax_h / hours
    noise = np.fft.rfft(rng.standard_normal(bins)) / (1 + turn**2)
    ranks = np.argsort(np.argsort(np.fft.irfft(noise, bins)))
    found: Floats = nodes * profile.pool_share.means(np.linspace(0.0, 1.0, bins + 1))[ranks]
    return found


def _intervals(groups: _Groups, nodes: int, step_s: int) -> Iterator[Interval]:
    """Give the groups nodes. A group that finds too few nodes, which is rare, takes those that there are."""
    stays = sorted(_unrolled(groups))
    busy = deque(sorted(names(nodes)))
    idle: list[tuple[int, int, list[str]]] = []
    for number, (start, end, size) in enumerate(stays):
        while idle and idle[0][0] < start:  # a node that leaves now does not join now
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
