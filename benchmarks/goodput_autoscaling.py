"""One large training on nodes that come and go as they are worth it, replayed (Pollux, section 5.3.3).

    OMP_NUM_THREADS=1 python benchmarks/goodput_autoscaling.py TRACES [--program imagenet]

TRACES is a folder with the authors' `traces/`. Prints a Markdown table: the same training with nodes by
throughput alone, which fills the workers' memory, and by goodput within several bounds of utility; and the
cheapest that any choice of nodes could be that is as fast, if all was known and changes took no time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bftrainer.allocate.goodput.sizes import TrainingPhases, UtilityBounds
from bftrainer.replay.dedicated.cluster import ClusterShape, figures_of, run
from bftrainer.replay.dedicated.phases import phases_of
from bftrainer.replay.dedicated.policies import policy_of
from bftrainer.replay.dedicated.programs import MeasuredProgram, read_program
from bftrainer.replay.dedicated.workload import SubmittedJob

CLUSTER = ClusterShape(16, 4)
BOUNDS = ((0.45, 0.65), (0.4, 0.6), (0.35, 0.55), (0.3, 0.5))
PRICES = np.geomspace(1e-4, 10, 400)
"""Prices of an hour's delay, relative to a node-hour, on the way to the cheapest training."""


def replayed(
    program: MeasuredProgram, bounds: tuple[float, float], *, by_throughput: bool
) -> tuple[float, ...]:
    """Hours and node-hours of the program's training, and how often it restarted."""
    policy = policy_of(
        "goodput", by_throughput=by_throughput, utility=UtilityBounds(*bounds, 1, CLUSTER.nodes)
    )
    job = SubmittedJob("training", 0.0, program, 1, program.limits.initial)
    figures = figures_of(run([job], CLUSTER, policy), CLUSTER)
    return figures["end_s"] / 3600, figures["node_hours"], figures["restarts"]


def cheapest(phases: TrainingPhases, prices: Iterable[float]) -> list[tuple[float, float]]:
    """Hours and node-hours of the trainings that no other choice of nodes makes both faster and cheaper.

    Each minimises time plus a price times node-time, which every epoch does by itself.
    """
    nodes = np.arange(1, len(phases.seconds) + 1)[:, np.newaxis]
    found = (phases.on(np.argmin(phases.seconds * (1 + price * nodes), axis=0) + 1) for price in prices)
    return sorted((training.time_s / 3600, training.node_s / 3600) for training in found)


def main() -> None:
    """Replay, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--program", default="imagenet")
    options = parser.parse_args()
    program = read_program(options.traces / "traces" / options.program)
    bound = cheapest(phases_of(program, CLUSTER.gpus, CLUSTER.nodes), PRICES)
    time_0, cost_0, restarts = replayed(program, BOUNDS[1], by_throughput=True)
    print("| nodes by | utility | time (h) | node-hours | time | cost | restarts | cost of the cheapest |")
    print(f"|{'---|' * 8}")
    low, high = BOUNDS[1]
    print(f"| throughput | {low} to {high} | {time_0:.2f} | {cost_0:.1f} | | | {restarts} | |")
    for low, high in BOUNDS:
        hours, cost, restarts = replayed(program, (low, high), by_throughput=False)
        least = min(spent for needed, spent in bound if needed <= hours)
        print(
            f"| goodput | {low} to {high} | {hours:.2f} | {cost:.1f} | {hours / time_0 - 1:+.1%} "
            f"| {cost / cost_0 - 1:+.1%} | {restarts} | {least / cost_0 - 1:+.1%} |"
        )


if __name__ == "__main__":
    main()
