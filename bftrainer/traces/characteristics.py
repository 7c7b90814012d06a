"""Figures of a log of idle nodes: the row of the paper's Table 1, fragments, pool sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.messages.files.logs import TELLS_NOTHING
from bftrainer.traces.intervals import LogError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrainer.traces.logs import Log

    Floats = NDArray[np.float64]

LENGTHS_S = (60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
"""Fragments are counted by these lengths."""
PERCENTILES = (0, 5, 10, 25, 50, 75, 90, 95, 99, 100)
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Table1:
    """The paper's Table 1 row.

    Attributes:
        hours: Span of the log.
        inc_per_h, dec_per_h: How often per hour the number of idle nodes grew, and shrank.
        ratio: Equivalent nodes over the machine's nodes.
        equivalent_nodes: Idle node-time over the span.
    """

    hours: float
    inc_per_h: float
    dec_per_h: float
    ratio: float
    equivalent_nodes: float


@dataclass(frozen=True, slots=True)
class Shorter:
    """The shares (0 to 1) of fragments that are shorter than `length_s`, and of the node-time in them."""

    length_s: float
    fragments: float
    node_time: float


@dataclass(frozen=True, slots=True)
class Characteristics:
    """Figures of a log.

    Attributes:
        table1: The paper's row.
        machine_nodes: The machine's nodes, of which `ratio` is a share.
        join_events_per_h, leave_events_per_h: Moments at which at least one node joined, or left.
        fragments: Number of fragments; one that the log's begin or end cuts counts with what is left of it.
        cut: Number of fragments that are cut so.
        mean_fragment_s: Mean length of the fragments.
        shorter: Cumulative distribution of their lengths, by number and by node-time.
        fragment_percentiles_s: Percentile -> length of fragments, each counting alike.
        node_time_percentiles_s: The same, each fragment counting by its length.
        pool_percentiles: Percentile of time -> nodes in the pool.
        empty_share: Share of the time in which the pool is empty, 0 to 1.
    """

    table1: Table1
    machine_nodes: int
    join_events_per_h: float
    leave_events_per_h: float
    fragments: int
    cut: int
    mean_fragment_s: float
    shorter: tuple[Shorter, ...]
    fragment_percentiles_s: dict[int, float]
    node_time_percentiles_s: dict[int, float]
    pool_percentiles: dict[int, int]
    empty_share: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PoolOverTime:
    """The pool over time: `sizes[i]` nodes from `times[i]` until `times[i + 1]`; times has one more.

    `joined[i]` and `left[i]` nodes change at `times[i]`; none do at the begin and the end of the log.
    """

    times: Floats
    sizes: Floats
    joined: Floats
    left: Floats


def lengths(log: Log) -> tuple[Floats, Floats]:
    """The distinct lengths of the fragments (s, within the log's span) in order, and how many have each."""
    start, end = _bounds(log)
    found, count = np.unique(end - start, return_counts=True)
    return found, count.astype(float)


def course(log: Log) -> PoolOverTime:
    """Number of nodes in the pool over the log's span."""
    start, end = _bounds(log)
    starts, starting = np.unique(start, return_counts=True)  # a log has millions, but few distinct ones
    ends, ending = np.unique(end, return_counts=True)
    moments = np.unique(np.concatenate([[log.begin, log.end], starts, ends]))
    joined, left = np.zeros(moments.size), np.zeros(moments.size)
    joined[np.searchsorted(moments, starts)] = starting
    left[np.searchsorted(moments, ends)] = ending
    sizes = np.cumsum(joined - left)[:-1]
    joined[0] = left[-1] = 0
    return PoolOverTime(moments, sizes, joined[:-1], left[:-1])


def characterise(log: Log) -> Characteristics:
    """All figures of a log.

    Raises:
        LogError: the log spans no time.
    """
    if not log.end > log.begin:
        raise LogError(TELLS_NOTHING.say(why="the log spans no time"))
    seconds = log.end - log.begin
    hours = seconds / HOUR
    length, count = lengths(log)
    node_time = length * count
    total = float(node_time.sum())
    fragments = int(count.sum())
    pool = course(log)
    net = pool.joined - pool.left
    held = np.diff(pool.times)
    return Characteristics(
        table1=Table1(
            hours=hours,
            inc_per_h=int((net > 0).sum()) / hours,
            dec_per_h=int((net < 0).sum()) / hours,
            ratio=total / seconds / log.machine_nodes,
            equivalent_nodes=total / seconds,
        ),
        machine_nodes=log.machine_nodes,
        join_events_per_h=int((pool.joined > 0).sum()) / hours,
        leave_events_per_h=int((pool.left > 0).sum()) / hours,
        fragments=fragments,
        cut=sum(i.start <= log.begin or i.end >= log.end for i in log.intervals),
        mean_fragment_s=total / max(1, fragments),
        shorter=tuple(
            Shorter(edge, _share(count, length < edge), _share(node_time, length < edge))
            for edge in LENGTHS_S
        ),
        fragment_percentiles_s=_weighted(length, count, PERCENTILES),
        node_time_percentiles_s=_weighted(length, node_time, PERCENTILES),
        pool_percentiles={
            percent: int(size) for percent, size in _weighted(pool.sizes, held, PERCENTILES).items()
        },
        empty_share=float(held[pool.sizes == 0].sum()) / seconds,
    )


def _bounds(log: Log) -> tuple[Floats, Floats]:
    """Starts and ends of all fragments, within the log's span."""
    count = len(log.intervals)
    start = np.fromiter((i.start for i in log.intervals), float, count)
    end = np.fromiter((i.end for i in log.intervals), float, count)
    return np.maximum(start, log.begin), np.minimum(end, log.end)


def _share(weights: Floats, of: NDArray[np.bool_]) -> float:
    """The share of the weights at the places `of`, 0 to 1."""
    return float(weights[of].sum() / max(weights.sum(), 1e-12))


def _weighted(values: Floats, weights: Floats, percentiles: tuple[int, ...]) -> dict[int, float]:
    """Percentile -> the smallest value below or at which this percentage of the weight lies."""
    if not values.size:
        return dict.fromkeys(percentiles, 0.0)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = np.array(percentiles) / 100 * reached[-1]
    found = values[order][np.minimum(np.searchsorted(reached, wanted * (1 - 1e-12)), values.size - 1)]
    return dict(zip(percentiles, map(float, found), strict=True))
