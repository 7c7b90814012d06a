"""A search of 64 trials on the idle nodes of Summit, with and without early stopping: forecasts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hpo_profiles import summit
from hpo_tables import Table

from bftrainer.search.plan.buy import buy
from bftrainer.search.plan.experiment import Experiment, Stage, successive_halving
from bftrainer.search.plan.pool import Pool
from bftrainer.search.plan.profile import Latency, Profile
from bftrainer.search.plan.simulate import Simulator
from bftrainer.traces.logs import cut, load

EPOCH = 1_281_167
"""Images of ImageNet."""
HOURS = 4.0


def summit_pool(traces: Path) -> Table:
    """64 ShuffleNet trials of up to 40 epochs on 1,024 nodes of Summit, by how trials are stopped."""
    folder = traces / "summit-2021"
    log = cut(load(folder / "idle_intervals_2021-02-10_16.csv.xz"), None, None, 1024)
    profile = Profile(
        curve=summit(folder / "imagenet_scalability_7models.csv", "shufflenet"),
        iteration_samples=EPOCH,
        most=64,
        nodes=1024,
        start=Latency(18),
    )
    searches = (
        ("none: every trial runs for 40 epochs", Experiment("none", (Stage(64, 40),))),
        ("halving, eta 2", successive_halving(64, 1, 40, 2)),
        ("halving, eta 4", successive_halving(64, 1, 40, 4)),
    )
    lines = []
    for name, search in searches:
        pool = Pool(Simulator(search, profile, samples=1), log, HOURS * 3600)
        found = pool.forecast()
        low, high = found.interval(pool.deadline_s)
        work = sum(stage.trials * stage.iterations for stage in search.stages)
        bought = buy(pool, 0.95)
        median = float(np.percentile(found.seconds, 50, method="higher"))
        lines.append(
            (
                name,
                f"{work:,.0f}",
                f"{40 / work:.0%}",
                f"{median / 3600:.1f} h",
                f"{found.chance(pool.deadline_s):.0%} ({low:.0%} to {high:.0%})",
                f"{bought.total:.1f}" if bought.reached else "-",
                ", ".join(map(str, bought.forecast.bought)),
            )
        )
    head = ("early stopping", "epochs in all", "for the trial that is kept", "done after (median)")
    return (*head, f"within {HOURS:g} h", "node-hours to buy for 95 %", "nodes by stage"), lines


POOLS = {"summit": summit_pool}
