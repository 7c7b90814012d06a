"""Plans of small cases: many orders are tried to the end of all jobs that have come. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bftrainer.iterations.model import Floats
from bftrainer.iterations.orders import ORDERS, JobsWaiting, Order
from bftrainer.iterations.plan import SharedState, plan

FEW = 2_000
"""Tasks for which plans are searched: a try with these takes some milliseconds."""
TRIES = 32
"""Random orders, beside those by name."""


def best_order(state: SharedState, otherwise: Order) -> Order:
    """The order by which the jobs that have come end soonest, or `otherwise` while they have many tasks left.

    An order depends on the state only. So the next search finds the one taken here again, or a better one.
    """
    here = state.arrived
    left = state.table.jobs["left"][here]
    if not 0 < sum(left * [len(state.jobs[number].tasks) for number in here]) <= FEW:
        return otherwise
    come = set(here.tolist())
    jobs = (job if n in come else replace(job, arrival=np.inf) for n, job in enumerate(state.jobs))
    state = replace(state, jobs=tuple(jobs))
    best, soonest = otherwise, np.inf
    for order in dict.fromkeys((otherwise, *ORDERS.values(), *map(_shuffled, range(TRIES)))):
        if (end := _end(state, order, soonest)) < soonest:
            best, soonest = order, end
    return best


def _end(state: SharedState, order: Order, soonest: float) -> float:
    """End of the last job (s); inf: not before the soonest so far."""
    while len(state.arrived):
        if state.now >= soonest:
            return float(np.inf)
        _, state = plan(state, order)
    ended = state.table.jobs["ended"]
    return float(ended[np.isfinite(ended)].max())


def _shuffled(number: int) -> Order:
    """An order by chance, another one in each state."""

    def order(jobs: JobsWaiting) -> Floats:
        rng = np.random.default_rng([number, *(1000 * jobs.remaining).astype(int)])
        return rng.random(len(jobs.job))

    return order
