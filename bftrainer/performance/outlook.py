"""Predicts when a trainer will have done its work, from its speed and its past. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

YOUNG_S = 30.0
"""A trainer that was submitted so recently has no past that tells anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Seconds until the work is done; None where nothing is known.

    Attributes:
        early: From now on with as many nodes as it may get, and no pause.
        likely: At the speed that it has now. While it waits: after the time for which it will do so, at
            its estimated speed on the usual number of nodes.
        late: At its average speed since it was submitted, with waiting, starts and smaller shares. While it
            waits: on the fewest nodes, if that is later.
    """

    early: float | None = None
    likely: float | None = None
    late: float | None = None


def outlook(
    left: float, *, done: float, age_s: float, rate: float | None, best: float | None = None
) -> Outlook:
    """The outlook of a trainer with `left` samples to do, which has `done` others since it was submitted
    `age_s` ago.

    `rate` is its speed now, in samples/s, None if it does not train; `best` the estimated speed on the most
    nodes that it may get, None if that is not asked for.
    """
    average = done / age_s if done > 0 and age_s >= YOUNG_S else None
    known = [speed for speed in (rate, best) if speed]
    slow = [speed for speed in (rate, average) if speed]
    return Outlook(
        early=left / max(known) if best and known else None,
        likely=left / rate if rate else None,
        late=left / min(slow) if average else None,
    )


def after_waiting(so_far: Outlook, left: float, *, waits_s: float, usual: float, slowest: float) -> Outlook:
    """The outlook of a trainer that gets nodes in `waits_s`, and then trains at its `usual` speed, at the
    `slowest` if it gets no more nodes than it needs. `so_far` is the estimate from its past."""
    likely = waits_s + left / usual if usual > 0 else None
    late = [
        span for span in (so_far.late, waits_s + left / slowest if slowest > 0 else None) if span is not None
    ]
    return replace(so_far, likely=likely, late=max(late, default=None))
