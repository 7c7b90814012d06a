"""Measurements of one trainer: which are kept, and how well they determine a quantity. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from bftrainer.model.trainer import AdaptingBatch, Cost, Observations, Observed

KEPT = 15
"""Number of latest measurements of a quantity to keep."""
SPREAD = 0.1
"""The relative spread of windows that is assumed before enough of them are known."""
SLOWEST, FASTEST = 1e-6, 1e12
"""Samples/s that a trainer may have: what workers report may be made up, and sums of other values lose their
meaning."""
MOST_STEPS = 64
"""Kinds of steps of which times are kept, those that were measured last."""
LONGEST_S = 86_400.0
"""Seconds of a rescale, at most."""

Sizes = tuple[tuple[int, Observed], ...]
"""Observations of one trainer on one class of nodes: (nodes, windows), nodes ascending."""


Kind = tuple[str | None, int, int, int, int]
"""A kind of step, as `Observations.steps` has it before its times."""


def added(observed: Observed, value: float) -> Observed:
    """A quantity with one more measurement."""
    return Observed(observed.count + 1, (*observed.recent, value)[-KEPT:])


def error(observed: Observed) -> float:
    """The standard error of the median, relative to it; 0 if the median is 0.

    Where there are few values, their spread is assumed rather than estimated.
    """
    k, middle = len(observed.recent), median(observed.recent)
    if middle <= 0:
        return 0.0
    spread = 1.4826 * median(abs(value / middle - 1.0) for value in observed.recent)
    return math.sqrt((SPREAD**2 + (k - 1) * spread**2) / k / k)


def with_speed(seen: Observations, node_class: str | None, n: int, rate: float) -> Observations:
    """Observations with one more window: `rate` samples/s on `n` nodes of a class.

    A window without nodes, or with a rate that no trainer has, is ignored.
    """
    if n < 1 or not SLOWEST <= rate <= FASTEST:
        return seen
    here = dict(sizes(seen, node_class))
    here[n] = added(here.get(n, Observed()), rate)
    elsewhere = tuple(speed for speed in seen.speeds if speed[0] != node_class)
    return replace(seen, speeds=(*elsewhere, *((node_class, *size) for size in sorted(here.items()))))


def with_step(
    seen: Observations, node_class: str | None, n: int, batch: AdaptingBatch, rate: float
) -> Observations:
    """Observations with one more window of a trainer whose batch adapts: `rate` samples/s on `n` nodes.

    It is ignored as in `with_speed`. A kind of step that was not measured for long makes room for a new one.
    """
    if n < 1 or not SLOWEST <= rate <= FASTEST:
        return seen
    workers = n * batch.workers
    share = math.ceil(batch.batch / workers)
    passes = math.ceil(share / batch.at_once)
    return _with_time(seen, (node_class, n, workers, math.ceil(share / passes), passes), batch.batch / rate)


def _with_time(seen: Observations, kind: Kind, seconds: float) -> Observations:
    known = {step[:5]: step[5] for step in seen.steps}
    before = known.pop(kind, Observed())
    kept = [(*key, times) for key, times in known.items()][-(MOST_STEPS - 1) :]
    return replace(seen, steps=(*kept, (*kind, added(before, seconds))))


def with_costs(seen: Observations, up: Cost | None, down: Cost | None) -> Observations:
    """Observations with the costs of one more rescale, up or down (None: it was not in this direction).

    Costs that are below 0, or above `LONGEST_S`, are ignored.
    """
    up, down = (cost if cost and _possible(cost) else None for cost in (up, down))
    if up is not None:
        seen = replace(
            seen,
            up_stall_s=added(seen.up_stall_s, up.stall_s),
            up_init_s=added(seen.up_init_s, up.init_s),
        )
    return seen if down is None else replace(seen, down_stall_s=added(seen.down_stall_s, down.stall_s))


def _possible(cost: Cost) -> bool:
    return 0 <= cost.stall_s <= LONGEST_S and 0 <= cost.init_s <= LONGEST_S


def merged(seen: Observations, more: Observations) -> Observations:
    """Observations with those of another trainer of the same program."""
    for name, n, windows in more.speeds:
        for rate in windows.recent:
            seen = with_speed(seen, name, n, rate)
    for *kind, times in more.steps:
        for seconds in times.recent:
            seen = _with_time(seen, tuple(kind), seconds)  # type: ignore[arg-type]
    # earlier versions may have stored one of the two alone
    for stall, init in zip(more.up_stall_s.recent, more.up_init_s.recent, strict=False):
        seen = with_costs(seen, Cost(stall_s=stall, init_s=init), None)
    for stall in more.down_stall_s.recent:
        seen = with_costs(seen, None, Cost(stall_s=stall))
    return seen


def sizes(seen: Observations, node_class: str | None = None) -> Sizes:
    """The windows on one class of nodes; None are all classes without a curve of their own."""
    return tuple((n, windows) for name, n, windows in seen.speeds if name == node_class)
