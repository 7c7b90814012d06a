"""The jobs that Pollux's authors published, replayed on a dedicated cluster of 16 nodes with 4 GPUs.

    OMP_NUM_THREADS=1 python benchmarks/goodput_replays.py TRACES [--workloads 1 2 3 4 6] [--jobs 2]

TRACES is a folder with the authors' `workloads/`, `traces/` and `authors_jct.csv`. Prints Markdown tables:
how far the replays of Tiresias and Optimus are from the published ones, job by job, the mean completion times
of the allocator goodput beside Pollux's, and how long a decision takes with 160 jobs.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, quantiles
from typing import Any
from unittest.mock import patch

from bftrainer.replay.dedicated.cluster import ClusterShape, figures_of, run
from bftrainer.replay.dedicated.policies import policy_of
from bftrainer.replay.dedicated.workload import FIXED, read_jobs

CLUSTER = ClusterShape(16, 4)
BASELINES = ("tiresias", "optimus")
MODES: dict[str, dict[str, Any]] = {
    "no sizes known": {},
    "declared epochs": {"declared": True},
    "declared epochs, shared profiles": {"declared": True, "shared": True},
}
Key = tuple[str, str]
"""A workload and a policy, or a mode of goodput."""


def published(traces: Path) -> dict[Key, dict[str, float]]:
    """The authors' completion times (s) by workload and policy, of each job."""
    found: dict[Key, dict[str, float]] = defaultdict(dict)
    with (traces / "authors_jct.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["workload"], row["policy"]][row["job"]] = float(row["jct_s"])
    return found


def replayed(task: tuple[Path, str, str]) -> dict[str, Any]:
    """The figures of one replay."""
    traces, workload, what = task
    jobs = read_jobs(traces / "workloads" / f"{workload}.csv", traces / "traces")
    mode = MODES.get(what, {})
    policy = policy_of("goodput" if what in MODES else what, declared=mode.get("declared", False))
    return figures_of(run(jobs, CLUSTER, policy, fixed=FIXED, shared=mode.get("shared", False)), CLUSTER)


def print_agreement(
    found: Mapping[Key, Mapping[str, Any]], known: Mapping[Key, Mapping[str, float]], workloads: list[str]
) -> None:
    """The table of the baselines: means here and as published, and jobs that differ."""
    print("| workload | policy | mean here (s) | published (s) | jobs that differ |\n|---|---|---|---|---|")
    for workload in workloads:
        for policy in BASELINES:
            here, there = found[workload, policy]["completion_by_job_s"], known[workload, policy]
            differ = sum(here[name] != there[name] for name in there)
            print(
                f"| {workload} | {policy} | {mean(here.values()):.2f} | {mean(there.values()):.2f} "
                f"| {differ} of {len(there)} |"
            )


def print_comparison(
    found: Mapping[Key, Mapping[str, Any]], known: Mapping[Key, Mapping[str, float]], workloads: list[str]
) -> None:
    """The table of goodput: means by workload, over all, and relative to Pollux."""
    print(f"\n| workload | {' | '.join((*BASELINES, 'Pollux'))} | {' | '.join(MODES)} |\n|{'---|' * 7}")
    columns: dict[str, list[float]] = defaultdict(list)
    for workload in workloads:
        for name in (*BASELINES, "pollux"):
            columns[name].append(mean(known[workload, name].values()))
        for name in MODES:
            columns[name].append(found[workload, name]["completion_s"]["mean"])
        print(f"| {workload} | {' | '.join(f'{times[-1]:,.0f}' for times in columns.values())} |")
    print(f"| mean | {' | '.join(f'{mean(times):,.0f}' for times in columns.values())} |")
    ours = (f"{mean(times) / mean(columns['pollux']):.3f}" for times in columns.values())
    print(f"| relative to Pollux | {' | '.join(ours)} |")


def print_decisions(traces: Path, workload: str) -> None:
    """Print the times of decisions while all jobs are there at once, by the wall clock and in CPU time."""
    jobs = read_jobs(traces / "workloads" / f"{workload}.csv", traces / "traces")
    at_once = [type(job)(job.name, 0.0, job.program, job.workers, job.batch) for job in jobs]
    policy, taken = policy_of("goodput", declared=True), []
    decide = policy.decide

    class EnoughError(Exception):
        """The decisions are measured."""

    def timed(*given: Any) -> Any:
        begin = time.perf_counter(), time.process_time()
        chosen = decide(*given)
        taken.append((1e3 * (time.perf_counter() - begin[0]), 1e3 * (time.process_time() - begin[1])))
        if len(taken) == 100:
            raise EnoughError
        return chosen

    try:
        with patch.object(policy, "decide", timed):
            run(at_once, CLUSTER, policy, shared=True)
    except EnoughError:
        wall, cpu = (quantiles(column, n=100) for column in zip(*taken, strict=True))
        print(
            f"\n{len(jobs)} jobs at once: a decision takes {wall[49]:.1f} ms, p99 {wall[98]:.1f} ms "
            f"(CPU time {cpu[49]:.1f} ms, p99 {cpu[98]:.1f} ms)"
        )


def main() -> None:
    """Replay, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--workloads", nargs="+", default=["1", "2", "3", "4", "6"])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    workloads = [f"workload-{number}" for number in options.workloads]
    keys = [(workload, what) for workload in workloads for what in (*BASELINES, *MODES)]
    with multiprocessing.Pool(options.jobs) as pool:
        tasks = [(options.traces, *key) for key in keys]
        found = dict(zip(keys, pool.map(replayed, tasks, chunksize=1), strict=True))
    known = published(options.traces)
    print_agreement(found, known, workloads)
    print_comparison(found, known, workloads)
    print_decisions(options.traces, workloads[0])


if __name__ == "__main__":
    main()
