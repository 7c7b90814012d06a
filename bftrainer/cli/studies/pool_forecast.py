"""Forecasts of searches on pools of nodes, as tables and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from bftrainer.cli.shared.tables import print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.model.text import clock
from bftrainer.search.plan.buy import Purchase
from bftrainer.search.plan.pools.pool import Forecast, Pool

PERCENTILES = (5, 25, 50, 75, 95)


def print_forecast(pool: Pool, harvested: Forecast, bought: Purchase | None, level: float | None) -> None:
    """Print when a search ends on idle nodes alone, and what has to be bought for a chance of `level`."""
    experiment, deadline = pool.simulator.experiment, pool.deadline_s
    say(
        f"{experiment.name} on idle nodes, begun at {harvested.begins.size} moments of "
        f"{(pool.log.end - pool.log.begin) / 3600:.0f} h:\n"
    )
    columns = ("done within", *(f"{p} %" for p in PERCENTILES), f"by {clock(deadline)}", "95 % interval")
    rows = [("idle nodes", *_row(harvested, deadline))]
    if bought is not None:
        rows.append(("and bought", *_row(bought.forecast, deadline)))
    print_table(columns, rows, numbers=columns[1:])
    if harvested.begins.size > harvested.apart:
        say(f"\n{max(1, harvested.apart)} of these moments do not overlap, and make the interval")
    if bought is None:
        return
    if not bought.reached:
        say(f"\nno purchase raises the chance to {level:.0%}; this one raises it most")
    say(f"\n{bought.total:.2f} node-hours on ordinary nodes beside the idle ones, on average:\n")
    single = pool.phases == len(experiment.stages)
    trials = [str(stage.trials) for stage in experiment.stages] if single else ["all brackets"]
    own = zip(trials, bought.forecast.bought, bought.node_hours, strict=True)
    print_table(
        ("stage", "trials", "ordinary nodes", "node-hours"),
        [(k + 1, of, nodes, f"{hours:.2f}") for k, (of, nodes, hours) in enumerate(own)],
        numbers=("stage", "trials", "ordinary nodes", "node-hours"),
    )


def as_json(pool: Pool, harvested: Forecast, bought: Purchase | None, level: float | None) -> dict[str, Any]:
    """Everything that the tables say, as plain data; a time at which nothing has ended is null."""
    found: dict[str, Any] = {
        "deadline_s": pool.deadline_s,
        "moments": harvested.begins.size,
        "independent": max(1, harvested.apart),
        "harvested": _figures(harvested, pool.deadline_s),
    }
    if bought is not None:
        found["bought"] = {
            **_figures(bought.forecast, pool.deadline_s),
            "level": level,
            "reached": bought.reached,
            "nodes": list(bought.forecast.bought),
            "node_hours": list(bought.node_hours),
            "total_node_hours": bought.total,
        }
    return found


def _figures(forecast: Forecast, deadline_s: float) -> dict[str, Any]:
    ends = _percentiles(forecast)
    return {
        "chance": forecast.chance(deadline_s),
        "interval": list(forecast.interval(deadline_s)),
        "percentiles_s": {str(p): ends[i] for i, p in enumerate(PERCENTILES)},
    }


def _percentiles(forecast: Forecast) -> list[float]:
    return [float(t) for t in np.percentile(forecast.seconds, PERCENTILES, method="higher")]


def _row(forecast: Forecast, deadline_s: float) -> tuple[str, ...]:
    low, high = forecast.interval(deadline_s)
    ends = [clock(t) if np.isfinite(t) else "never" for t in _percentiles(forecast)]
    return *ends, f"{forecast.chance(deadline_s):.0%}", f"{low:.0%} to {high:.0%}"
