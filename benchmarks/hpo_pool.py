"""A search of 64 trials on the idle nodes of Summit, with and without early stopping: forecasts."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hpo_profiles import summit
from hpo_tables import Table

from bftrainer.replay import scenario
from bftrainer.replay.evaluate import evaluate
from bftrainer.search.plan.buy import buy
from bftrainer.search.plan.model.experiment import Experiment, Stage, successive_halving
from bftrainer.search.plan.model.profile import ExperimentProfile, Latency
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.pools.pool import Pool
from bftrainer.traces.logs import cut, load

EPOCH = 1_281_167
"""Images of ImageNet."""
HOURS = 4.0


def summit_pool(traces: Path) -> Table:
    """64 ShuffleNet trials of up to 40 epochs on 1,024 nodes of Summit, by how trials are stopped."""
    folder = traces / "summit-2021"
    log = cut(load(folder / "idle_intervals_2021-02-10_16.csv.xz"), None, None, 1024)
    profile = ExperimentProfile(
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
        began = time.perf_counter()
        found = pool.forecast()
        took_s = time.perf_counter() - began
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
                f"{took_s:.1f}",
            )
        )
    head = ("early stopping", "epochs in all", "for the trial that is kept", "done after (median)")
    return (
        *head,
        f"within {HOURS:g} h",
        "node-hours to buy for 95 %",
        "nodes by stage",
        "seconds of the forecast",
    ), lines


STARTS_H = (5.0, 30.0, 55.0, 80.0, 105.0)
"""Moments of the log at which searches begin, in hours."""
WINDOW_H = 48.0
"""Hours that a stage may take."""


def replayed(traces: Path) -> Table:
    """The same search in the engine: each stage is a replay, which begins when the last one ends."""
    folder = traces / "summit-2021"
    log = load(folder / "idle_intervals_2021-02-10_16.csv.xz")
    starts = [log.begin + 3600 * hours for hours in STARTS_H]
    lines = []
    for name, search in (
        ("none", Experiment("none", (Stage(64, 40),))),
        ("halving, eta 4", successive_halving(64, 1, 40, 4)),
    ):
        for parallel in (10, "auto"):
            done = [_replay(folder, search, begin, parallel) for begin in starts]
            hours = [end / 3600 for end, _, _ in done]
            lines.append(
                (
                    f"{name}; P_jmax {parallel}",
                    ", ".join(f"{h:.1f}" for h in hours),
                    f"{np.mean(hours):.1f} h",
                    f"{np.mean([node_s for _, node_s, _ in done]) / 3600:.0f}",
                    f"{np.mean([kept / node_s for _, node_s, kept in done]):.1%}",
                )
            )
    head = (
        "early stopping",
        "hours until the best is known, from five moments",
        "mean",
        "node-hours",
        "for the trial that is kept",
    )
    return head, lines


def _replay(
    folder: Path, search: Experiment, begin: float, parallel: int | str
) -> tuple[float, float, float]:
    """Seconds until a search is done, its node-seconds, and those of the trial that is kept, the first."""
    at, node_s, kept = begin, 0.0, 0.0
    for stage in search.stages:
        with TemporaryDirectory() as place:
            jobs = Path(place) / "jobs.csv"
            rows = (
                f"t{i},18,12,1,64,{stage.iterations * EPOCH:.0f},1970-01-01T00:00:00,shufflenet"
                for i in range(stage.trials)
            )
            jobs.write_text("\n".join(["job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model", *rows]) + "\n")
            parameters = {
                "log": folder / "idle_intervals_2021-02-10_16.csv.xz",
                "workload": jobs,
                "curves": folder / "imagenet_scalability_7models.csv",
                "nodes": 1024,
                "begin": at,
                "hours": WINDOW_H,
                "max_parallel": parallel,
            }
            found = evaluate(scenario.of(parameters), name="stage").report_data
        assert found is not None and all(trainer.completed for trainer in found.trainers)
        node_s += sum(trainer.node_s for trainer in found.trainers)
        kept += found.trainers[0].node_s
        at += max(trainer.ended for trainer in found.trainers if trainer.ended is not None)
    return at - begin, node_s, kept


POOLS = {"summit": summit_pool, "replayed": replayed}
