"""Times a fit of the goodput model, and the best batches of all sizes.

    OMP_NUM_THREADS=1 python benchmarks/goodput.py [--repeat 100]

Prints a Markdown table of milliseconds, medians and 99th percentiles, for trainers that have been measured on
more and more sizes of nodes with four GPUs. More threads of the linear algebra only disturb each other here.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from bftrainer.performance.goodput import BatchLimits, GoodputModel, SystemModel
from bftrainer.performance.goodput_fit import IterationTime, fit

GPUS = 4
TRUE = SystemModel(
    alpha_grad=0.05,
    beta_grad=0.002,
    alpha_local=0.02,
    beta_local=0.003,
    alpha_node=0.1,
    beta_node=0.004,
    gamma=2.0,
)
LIMITS = BatchLimits(initial=32, most=4096, local_most=256)


def measured(rng: random.Random, largest: int) -> list[IterationTime]:
    """Return measurements of a trainer that doubled up to `largest` workers, five batches on each size."""
    found, workers = [], 1
    while workers <= largest:
        for batch in rng.sample(range(8, 257), 5):
            nodes, off = -(-workers // GPUS), rng.lognormvariate(0, 0.05)
            times = float(TRUE.iteration_time(nodes, workers, batch)), float(TRUE.gradient_time(batch))
            found.append(IterationTime(nodes, workers, batch, times[0] * off, times[1] * off))
        workers *= 2
    return found


def timed(work: Callable[[], object], repeat: int) -> str:
    """Median and 99th percentile of the milliseconds that the work takes."""
    taken = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - begin))
    return f"{statistics.median(taken):.2f} | {statistics.quantiles(taken, n=100)[-1]:.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=100)
    repeat = parser.parse_args().repeat
    rng = random.Random(1)
    print("| what | median ms | p99 ms |\n|---|---|---|")
    for largest in (1, 2, 4, 16, 64):
        data = measured(rng, largest)
        taken = timed(partial(fit, data), repeat)
        print(f"| fit, {len(data)} times on up to {largest} workers | {taken} |")
    workers = np.arange(1, 65)
    model = GoodputModel(TRUE, LIMITS, 500.0)
    best = timed(lambda: model.best(-(-workers // GPUS), workers), repeat)
    print(f"| best batches on 1 to 64 workers | {best} |")


if __name__ == "__main__":
    main()
