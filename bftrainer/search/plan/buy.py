"""The number of ordinary nodes to buy beside the pool's, by phase, to meet the deadline often enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bftrainer.search.plan.model.step import allocations
from bftrainer.search.plan.pools.pool import Forecast, Pool

MOST_MOVES = 400
"""Improvements of the purchase, at most."""
SIZES = 40
"""Numbers of nodes that are tried in a stage, about."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """Ordinary nodes by phase: by stage, or for all brackets that go on at once.

    Attributes:
        forecast: The forecast with them.
        node_hours: Mean node-hours of each phase.
        reached: Whether the chance that was wanted is reached. If not, this is what the most nodes give.
    """

    forecast: Forecast
    node_hours: tuple[float, ...]
    reached: bool

    @property
    def total(self) -> float:
        """All ordinary node-hours."""
        return sum(self.node_hours)


def buy(pool: Pool, level: float) -> Purchase:
    """The least ordinary node-hours found with which the deadline is met with a chance of `level`.

    From the least number that does it if all stages have the same, and from the least in single stages: the
    number in one stage is lowered or raised, or lowered while that in another one is raised, as long as that
    saves. More nodes save where trials then fit evenly, and so end sooner than they cost more.
    """
    sizes = [_sizes(pool, k) for k in range(pool.phases)]
    most = [len(own) - 1 for own in sizes]
    best = _purchase(pool, sizes, most, level)
    if not best.reached:
        return best
    for start in _starts(pool, sizes, level):
        found = _descend(pool, sizes, start, level)
        if found.total < best.total:
            best = found
    return best


def _sizes(pool: Pool, k: int) -> list[int]:
    """Numbers of nodes to try in a phase: none, and those of its allocations, ever farther apart."""
    stages, profile = pool.simulator.experiment.stages, pool.simulator.profile
    own = stages[k : k + 1] if pool.phases > 1 else stages
    found = sorted({0, *(step.nodes for stage in own for step in allocations(stage, profile))})
    if len(found) <= SIZES:
        return found
    chosen = {round((len(found) - 1) ** (i / (SIZES - 1))) for i in range(SIZES)}
    return [found[i] for i in sorted({0, *chosen})]


def _starts(pool: Pool, sizes: Sequence[Sequence[int]], level: float) -> Iterator[list[int]]:
    """Purchases that reach the level, from which to search."""
    highest = max(max(own) for own in sizes)
    low, high = -1, highest
    while high - low > 1:  # the same number in all stages
        middle = (low + high) // 2
        if _purchase(pool, sizes, _up_to(sizes, middle), level).reached:
            high = middle
        else:
            low = middle
    yield _up_to(sizes, high)
    for k, own in enumerate(sizes):  # in one stage only
        for i in range(len(own)):
            at = [i if j == k else 0 for j in range(len(sizes))]
            if _purchase(pool, sizes, at, level).reached:
                yield at
                break


def _up_to(sizes: Sequence[Sequence[int]], nodes: int) -> list[int]:
    return [max(i for i, size in enumerate(own) if size <= nodes) for own in sizes]


def _descend(pool: Pool, sizes: Sequence[Sequence[int]], at: list[int], level: float) -> Purchase:
    """The best purchase that is reached by single moves, each of which saves."""
    best = _purchase(pool, sizes, at, level)
    for _ in range(MOST_MOVES):
        moves = [(_purchase(pool, sizes, move, level), move) for move in _moves(sizes, at)]
        better = [(found, move) for found, move in moves if found.reached and found.total < best.total - 1e-9]
        if not better:
            break
        best, at = min(better, key=lambda found: found[0].total)
    return best


def _moves(sizes: Sequence[Sequence[int]], at: Sequence[int]) -> Iterator[list[int]]:
    yield from (more for _, more in _raised(sizes, at))
    for down, i in enumerate(at):
        for lower in {i - 1, i // 2, 0} if i else ():
            less = [*at[:down], lower, *at[down + 1 :]]
            yield less
            yield from (more for up, more in _raised(sizes, less) if up != down)


def _raised(sizes: Sequence[Sequence[int]], at: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield the phase that gets more nodes, and the nodes of all phases then."""
    for up, j in enumerate(at):
        for higher in {j + 1, 2 * j} - {j}:
            if higher < len(sizes[up]):
                yield up, [*at[:up], higher, *at[up + 1 :]]


def _purchase(pool: Pool, sizes: Sequence[Sequence[int]], at: Sequence[int], level: float) -> Purchase:
    found = pool.forecast([own[i] for own, i in zip(sizes, at, strict=True)])
    hours = found.node_hours(pool.deadline_s)
    return Purchase(found, tuple(map(float, hours)), found.chance(pool.deadline_s) >= level)
