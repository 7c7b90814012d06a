"""RubberBand's tables 1 to 4, and how far its greedy planner is from the optimum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from hpo_planned import SOON, clock, cost, on_machines, planned, pollux
from hpo_profiles import scattered, strong_scaling

from bftrainer.search.plan.baselines import cheapest, fixed_sizes
from bftrainer.search.plan.methods.exact import exact, fastest
from bftrainer.search.plan.methods.greedy import greedy, repaired
from bftrainer.search.plan.model.experiment import successive_halving
from bftrainer.search.plan.model.profile import ExperimentProfile, Latency, Spread
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.model.table import tabulate

T = TypeVar("T")
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
EPOCH_S = 127.0
"""An epoch on one GPU; with it the elastic plan for 40 minutes costs about RubberBand's $14.68."""


def resnet(traces: Path) -> ExperimentProfile:
    """ResNet-50, batch 1,024, on machines from a warm pool: of Pollux's models the nearest to ResNet101."""
    return on_machines(pollux(traces, "imagenet", 1024), EPOCH_S, scale=SOON, init=SOON)


def table_1(traces: Path) -> Table:
    """Placement: samples/s with GPUs on one machine, and each on a machine of its own."""
    folder = traces / "pollux-osdi21" / "traces" / "imagenet"
    lines = [("published: ResNet50, batch 1,024, V100", "2.0x, 3.7x", "1.4x, 1.8x")]
    for batch in (1024, 256, 128, 80):
        near, far = dict(pollux(traces, "imagenet", batch)), dict(strong_scaling(scattered(folder), batch))
        ratios = [f"{own[2] / own[1]:.1f}x, {own[4] / own[1]:.1f}x" for own in (near, far)]
        lines.append((f"ours: ResNet-50, batch {batch:,}, T4", ratios[0], ratios[1]))
    return ("2 and 4 GPUs beside one", "together", "each on a machine of its own"), lines


PUBLISHED_2 = {
    20: ("$34.00", "$27.50", "$15.68", "2.17x"),
    30: ("$17.73", "$19.83", "$14.70", "1.21x"),
    40: ("$14.99", "$19.83", "$14.68", "1.02x"),
}


def table_2(traces: Path) -> Table:
    """Cost by deadline: SHA(32, 1, 50, 3)."""
    lines = []
    for minutes, (static, naive, elastic, saving) in PUBLISHED_2.items():
        found = planned(successive_halving(32, 1, 50, 3), resnet(traces), minutes)
        lines.append(
            (
                f"{minutes} min",
                f"{static}, {naive}, {elastic}",
                saving,
                f"{cost(found.static)}, {cost(found.naive)}, {cost(found.greedy)}, {cost(found.exact)}",
                found.saving,
                clock(found.exact),
            )
        )
    head = ("deadline", "published: static, naive, elastic", "saving", "ours: static, naive, greedy, exact")
    return (*head, "saving", "time"), lines


def table_3(traces: Path) -> Table:
    """The plan for 20 minutes."""
    found = planned(successive_halving(32, 1, 50, 3), resnet(traces), 20).exact
    assert found is not None
    published = (("0-1", 32, 1, 8), ("1-4", 10, 2, 5), ("4-13", 3, 4, 4), ("13-50", 1, 8, 2))
    return (
        (
            "epochs",
            "trials",
            "published: GPUs a trial",
            "machines",
            "ours: GPUs a trial",
            "at a time",
            "machines",
        ),
        [
            (
                epochs,
                f"{trials}",
                f"{gpus}",
                f"{machines}",
                f"{step.workers}",
                f"{step.parallel}",
                f"{step.nodes}",
            )
            for (epochs, trials, gpus, machines), step in zip(published, found.steps, strict=True)
        ],
    )


def table_4(traces: Path) -> Table:
    """Cost by model, fixed and elastic, under a deadline as tight as that of table 2 for its model."""
    models = (
        ("ResNet101 on CIFAR-10", "$33.21, $15.67", "2.12x", "ResNet-50, batch 1,024", "imagenet", 1024),
        ("ResNet152 on CIFAR-100", "$35.53, $26.54", "1.34x", "ResNet-50, batch 2,048", "imagenet", 2048),
        ("BERT on RTE", "$36.43, $29.17", "1.25x", "BERT, batch 384", "bert", 384),
        ("", "", "", "ResNet-18 (CIFAR-10), batch 1,024", "cifar10", 1024),
    )
    lines = []
    for name, costs, saving, ours, model, batch in models:
        profile = on_machines(pollux(traces, model, batch), EPOCH_S, scale=SOON, init=SOON)
        found = planned(successive_halving(32, 1, 50, 3), profile, tight(profile))
        lines.append((name, costs, saving, ours, f"{cost(found.static)}, {cost(found.exact)}", found.saving))
    head = ("published", "fixed, elastic", "saving", "ours", "fixed, exact", "saving")
    return head, lines


def tight(profile: ExperimentProfile) -> float:
    """Minutes of a deadline that is 1.5 times what the fastest plan takes."""
    simulator = Simulator(successive_halving(32, 1, 50, 3), profile, samples=8)
    return 1.5 * fastest(simulator, tabulate(simulator)).estimate.jct_s / 60


def gap(traces: Path) -> Table:
    """Return how much dearer greedy plans are than exact ones, by tightness of the deadline; and times."""
    lines = []
    curve = pollux(traces, "imagenet", 2048)
    searches = (
        ("SHA(32, 1, 50, 3), 4 stages", successive_halving(32, 1, 50, 3), 4, 128),
        ("SHA(64, 4, 508, 2), 7 stages", successive_halving(64, 4, 508), 4, 128),
        ("SHA(512, 4, 4096, 2), 10 stages", successive_halving(512, 4, 4096), 4, 512),
        ("the same, nodes with 1 GPU", successive_halving(512, 4, 4096), 1, 512),
    )
    for name, search, node_workers, nodes in searches:
        own = on_machines(curve, 12.0, scale=SOON, init=Latency(15, 2), spread=Spread(0.05))
        profile = replace(own, node_workers=node_workers, nodes=nodes, most=256)
        ends, times = [], [0.0, 0.0, 0.0, 0.0]
        simulator = Simulator(search, profile)
        began = time.perf_counter()
        table = tabulate(simulator)
        times[0] = time.perf_counter() - began
        soonest = fastest(simulator, table).estimate.jct_s
        for tightness in (1.05, 1.2, 1.5, 2.0, 4.0):
            deadline = tightness * soonest
            static = cheapest(fixed_sizes(simulator), deadline)
            best, took = timed(partial(exact, simulator, table, deadline))
            other, longer = timed(partial(greedy, simulator, deadline, static))
            mended, longest = timed(partial(repaired, simulator, table, deadline, static))
            times[1:] = [max(times[1], took), max(times[2], longer), max(times[3], longest)]
            assert best.proven and best.plan is not None
            total = best.plan.estimate.total
            gaps = (f"{100 * (p.estimate.total / total - 1):.1f} %" if p else "-" for p in (other, mended))
            ends.append(", ".join(gaps))
        spent = (times[0] + times[1], times[2], times[0] + times[3])
        lines.append((name, *ends, ", ".join(f"{seconds:.2f}" for seconds in spent)))
    head = (
        "search",
        "deadline 1.05 x fastest",
        "1.2 x",
        "1.5 x",
        "2 x",
        "4 x",
        "seconds of exact, greedy, repaired",
    )
    return head, lines


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its time (s)."""
    began = time.perf_counter()
    return call(), time.perf_counter() - began


TABLES = {"table-1": table_1, "table-2": table_2, "table-3": table_3, "table-4": table_4, "greedy": gap}
