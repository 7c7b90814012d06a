"""Jigsaw and what it consists of, on the published mix of jobs, over seeds, beside linear programs' bounds.

    python benchmarks/iterations.py philly.csv.xz [--seeds 11-40] [--faster 32] [--policies ...]
    python benchmarks/iterations.py --small 200-259

Prints Markdown tables: makespans relative to Tiresias's and to the bound, completion times and moves, as
median (least to most) over the seeds; and how long it takes to plan a minute (--speed: nothing else). Where
devices are shared, jobs, arrivals and intervals are `--faster` times shorter than published; iterations not.
With --small: how far plans of small cases of these seeds are above the exact optimum.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bftrainer.iterations.bounds import makespan_bound
from bftrainer.iterations.model import PlanRules, SharedDevices
from bftrainer.iterations.orders import ORDERS
from bftrainer.iterations.plan import begin, plan
from bftrainer.replay.iterations.policies import POLICIES, figures_of, replay
from bftrainer.replay.iterations.shared import share
from bftrainer.replay.iterations.workload import MixOptions, jobs_of, mix, read_durations

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.small_cases import DEVICES, case, optimum, searched  # the MILP is a test's oracle

MEMORY_GB = 16.0
Run = tuple[Path, float, int, str, dict[str, float], float]
"""Log, how much faster, seed, policy, options of the mix, gamma."""


durations = cache(read_durations)


def figures(run: Run) -> dict[str, Any]:
    """The figures of one replay, with its times as long as published; or of the bounds."""
    log, faster, seed, name, changes, gamma = run
    if name in POLICIES and POLICIES[name].gang:
        faster = 1.0  # a gang's restart would count more, and takes no time to simulate
    given = {"hours": 10.0, "every_s": 30.0, "longest_hours": 2.5} | changes
    scaled: dict[str, Any] = {key: value / faster for key, value in given.items()}
    options = MixOptions(**scaled)
    jobs = mix(durations(log), options, seed)
    if name in ("full", "partial"):
        bound_s = makespan_bound(jobs_of(jobs, options, partial=name == "partial"), options.devices)
        print(f"<!-- seed {seed}, bound, {name}: {faster * bound_s / 3600:.3f} h -->", flush=True)
        return {"makespan_h": faster * bound_s / 3600}
    rules = PlanRules(interval_s=60 / faster, gamma_s_per_gb=gamma)
    found = figures_of(replay(jobs, options, rules, MEMORY_GB, name), options.devices)
    found["makespan_h"] *= faster
    found["completion_h"] = {key: faster * value for key, value in found["completion_h"].items()}
    mean = found["completion_h"]["mean"]
    print(f"<!-- seed {seed}, {name}: {found['makespan_h']:.3f} h, mean {mean:.3f} h -->", flush=True)
    return found


def spread(values: Sequence[float], form: str) -> str:
    """Median, least and most."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def print_table(found: dict[tuple[str, int], dict[str, Any]], names: list[str], seeds: list[int]) -> None:
    """One row a policy."""

    def makespans(name: str) -> list[float]:
        return [found[name, seed]["makespan_h"] for seed in seeds]

    def beside(name: str, other: str) -> str:
        return spread([a / b - 1 for a, b in zip(makespans(name), makespans(other), strict=True)], "+.1%")

    for bound in ("full", "partial"):
        print(f"\nbound, {bound} back-propagation: {spread(makespans(bound), '.2f')} h")
    print(
        "\n| policy | makespan, h | to Tiresias | to Gandiva | to bound | mean, p99 completion, h | moved |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in names:
        bound = "partial" if POLICIES[name].partial else "full"
        times = [found[name, seed]["completion_h"] for seed in seeds]
        print(
            f"| {name} | {spread(makespans(name), '.2f')} | {beside(name, 'tiresias')} "
            f"| {beside(name, 'gandiva')} | {beside(name, bound)} "
            f"| {spread([one['mean'] for one in times], '.2f')}, {median(one['p99'] for one in times):.1f} "
            f"| {median(found[name, seed]['moved'] for seed in seeds):.0%} |"
        )


def print_speed(log: Path) -> None:
    """Print the time to plan a minute of 45 and 1,000 devices, with as many jobs as at the peak."""
    print("\n| devices | jobs | tasks | planned in, s (wall) | CPU, s |\n|---|---|---|---|---|")
    for devices, count in ((45, 41), (1000, 911)):
        options = MixOptions(jobs=count, every_s=0.0, devices=devices, hours=1.0)
        jobs = jobs_of(mix(read_durations(log), options, 11), options, partial=True)
        _, state = plan(begin(jobs, SharedDevices(devices, MEMORY_GB), PlanRules()), ORDERS["product"])
        wall, cpu = time.perf_counter(), time.process_time()
        tasks, _ = plan(state, ORDERS["product"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"| {devices:,} | {count} | {len(tasks.slot):,} | {wall:.2f} | {cpu:.2f} |")


def print_small(seeds: Sequence[int]) -> None:
    """Print how far searched plans, and the best of the orders by name, are above the optimum."""
    rules = PlanRules(gamma_s_per_gb=0.0, apart=False)
    plain, found = [], []
    for seed in seeds:
        jobs, devices = case(seed), SharedDevices(DEVICES, MEMORY_GB)
        best = min(float(share(jobs, devices, rules, order).ended.max()) for order in ORDERS.values())
        least, ours = float(np.ceil(makespan_bound(jobs, DEVICES) - 1e-6)), searched(jobs)
        exact = least if ours <= least else optimum(jobs, int(ours) + 1)
        plain.append(best / exact - 1)
        found.append(ours / exact - 1)
    print("| cases | plans | optimal | above the optimum, mean | most |\n|---|---|---|---|---|")
    for name, above in (("best order by name", plain), ("searched", found)):
        optimal = sum(one < 1e-9 for one in above)
        print(f"| {len(above)} | {name} | {optimal} | {np.mean(above):.1%} | {max(above):.1%} |")


def seeds_of(text: str) -> list[int]:
    """The numbers from the first to the last."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> None:
    """Replay, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--seeds", default="11-40", help="such as 11-40")
    parser.add_argument("--small", type=seeds_of, metavar="SEEDS", help="only small cases")
    parser.add_argument("--faster", type=float, default=32.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--policies", nargs="+", choices=sorted(POLICIES), default=list(POLICIES))
    parser.add_argument("--hours", type=float, default=10.0, help="work for each device")
    parser.add_argument("--longest-hours", type=float, default=2.5)
    parser.add_argument("--gamma", type=float, default=0.8, help="seconds for a move, per GB")
    parser.add_argument("--speed", action="store_true", help="only how long a plan takes")
    given = parser.parse_args()
    if given.small:
        print_small(given.small)
        return
    if not given.speed:
        seeds = seeds_of(given.seeds)
        names = list(dict.fromkeys(["tiresias", "gandiva", *given.policies]))
        changes = {"hours": given.hours, "longest_hours": given.longest_hours}
        keys = [(name, seed) for name in ("full", "partial", *names) for seed in seeds]
        runs = [(given.log, given.faster, seed, name, changes, given.gamma) for name, seed in keys]
        with multiprocessing.Pool(given.processes) as pool:
            found = dict(zip(keys, pool.map(figures, runs, chunksize=1), strict=True))
        print_table(found, names, seeds)
    print_speed(given.log)


if __name__ == "__main__":
    main()
