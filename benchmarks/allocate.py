"""Time the exact allocators against each other on the same random problems.

    python benchmarks/allocate.py [--repeat 5]

Prints a Markdown table: median milliseconds to a proven optimum, and the ratio within this run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from bftrainer.allocate import ALLOCATORS
from bftrainer.model import Candidate, Cost, EngineSettings, Problem, RescaleCosts

SIZES = ((5, 50), (10, 100), (10, 400), (35, 800), (100, 4608))


def curve(rng: random.Random) -> tuple[tuple[int, float], ...]:
    """A curve like those of ImageNet models: roughly Amdahl's law, with the measurements' wiggles."""
    one, serial = rng.uniform(1000, 7000), rng.uniform(0.002, 0.02)
    return tuple(
        (n, one * n / (1 + serial * (n - 1)) * rng.uniform(0.97, 1.03)) for n in (1, 2, 4, 8, 16, 32, 64)
    )


def problem(trainers: int, nodes: int, rng: random.Random) -> Problem:
    candidates, free = [], nodes
    for trainer in range(trainers):
        current = rng.randint(0, min(64, free, 2 * nodes // trainers))
        free -= current
        costs = RescaleCosts(up=Cost(stall_s=rng.uniform(15, 20)), down=Cost(stall_s=rng.uniform(10, 13)))
        candidates.append(
            Candidate(trainer=trainer, n_min=1, n_max=64, current=current, curve=curve(rng), costs=costs)
        )
    return Problem(pool_size=nodes, t_fwd_s=120.0, candidates=tuple(candidates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    for name in ("knapsack", "milp"):  # imports are not what is measured
        ALLOCATORS[name](problem(2, 4, random.Random(0)), EngineSettings())
    print("| trainers x nodes | knapsack (ms) | MILP (ms) | ratio |\n|---|---|---|---|")
    for trainers, nodes in SIZES:
        rng = random.Random(f"{trainers} {nodes}")
        times: dict[str, list[float]] = {"knapsack": [], "milp": []}
        for _ in range(options.repeat):
            one = problem(trainers, nodes, rng)
            values = []
            for name, taken in times.items():
                begin = time.perf_counter()
                plan = ALLOCATORS[name](one, EngineSettings(milp_time_limit_s=600.0))
                taken.append((time.perf_counter() - begin) * 1e3)
                assert plan.proven
                values.append(plan.objective)
            assert abs(values[0] - values[1]) <= 1e-7 * abs(values[0]), values
        knapsack, milp = (statistics.median(t) for t in times.values())
        print(f"| {trainers} x {nodes:,} | {knapsack:.2f} | {milp:.1f} | {milp / knapsack:.0f} |")


if __name__ == "__main__":
    main()
