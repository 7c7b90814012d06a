"""Plans without a deadline but with a price on time: shortest paths through the tables, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bftrainer.search.plan.model.profile import Floats
from bftrainer.search.plan.model.table import Ints, Table

HALVINGS = 16
DOUBLINGS = 80


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The best plan for a price on time.

    Attributes:
        time_price: The price of a second.
        value: Cost and priced time of the best plan: no plan has less.
        onwards: For each stage and each allocation of the stage before: the least value of what is left. The
            last entry, after all stages, is 0.
        path: The index of the best plan's allocation in each stage.
        seconds: The time of the best plan.
    """

    time_price: float
    value: float
    onwards: tuple[Floats, ...]
    path: tuple[int, ...]
    seconds: float


def relax(table: Table, time_price: float, cost_price: float = 1.0) -> Relaxed:
    """The plan with the least cost_price x cost + time_price x seconds; minimum charges are left out."""
    onwards: list[Floats] = [np.zeros(table.nodes[-1].size)]
    choices: list[Ints] = []
    for k in range(len(table.nodes) - 1, -1, -1):
        own = cost_price * table.cost[k] + time_price * table.seconds[k] + onwards[0]
        way = cost_price * table.growth[k] + time_price * table.wait_s[k]
        total = way + own[None, :]
        choices.insert(0, total.argmin(axis=1))
        onwards.insert(0, total.min(axis=1))
    at, seconds, path = 0, 0.0, []
    for k, choice in enumerate(choices):
        to = int(choice[at])
        seconds += float(table.wait_s[k][at, to] + table.seconds[k][to])
        path.append(to)
        at = to
    return Relaxed(time_price, float(onwards[0][0]), tuple(onwards), tuple(path), seconds)


def bracket(table: Table, deadline_s: float) -> tuple[list[Relaxed], list[tuple[int, ...]]]:
    """Prices on time around the one at which the best plan just meets the deadline, and plans on time.

    There must be a plan on time.
    """
    low = relax(table, 0.0)
    if low.seconds <= deadline_s:
        return [low], [low.path]
    price = low.value / low.seconds or 1e-9
    high = relax(table, price)
    for _ in range(DOUBLINGS):
        if high.seconds <= deadline_s:
            break
        low, price = high, price * 2
        high = relax(table, price)
    feasible = [high.path] if high.seconds <= deadline_s else []
    best = max((low, high), key=lambda found: found.value - found.time_price * deadline_s)
    for _ in range(HALVINGS):
        middle = relax(table, (low.time_price + high.time_price) / 2)
        best = max((best, middle), key=lambda found: found.value - found.time_price * deadline_s)
        if middle.seconds <= deadline_s:
            high = middle
            feasible.append(middle.path)
        else:
            low = middle
    return [best, low, high], feasible
