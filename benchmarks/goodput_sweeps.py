"""Replays of Pollux's jobs with other pauses, loads, weights, users' settings and interference.

    OMP_NUM_THREADS=1 python benchmarks/goodput_sweeps.py TRACES WHAT [--workloads 1 2 3 4]

TRACES is a folder with the authors' `workloads/`, `traces/` and `authors_jct.csv`. WHAT is `pauses`, `load`
(figure 8), `weights` (table 3), `powers`, `users` (figure 7) or `interference` (figure 9); each prints a
Markdown table of mean completion times.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from goodput_replays import CLUSTER, published

from bftrainer.allocate.goodput.counts import GoodputAim
from bftrainer.performance.goodput import gain, noise_scale
from bftrainer.replay.dedicated.baselines import iteration_s
from bftrainer.replay.dedicated.cluster import TICK_S, figures_of, run
from bftrainer.replay.dedicated.job import PUBLISHED, Pauses
from bftrainer.replay.dedicated.policies import policy_of
from bftrainer.replay.dedicated.programs import MeasuredProgram
from bftrainer.replay.dedicated.workload import FIXED, SubmittedJob, read_jobs

COLD = Pauses(init_s=7.9, stall_up_s=0.023, stall_down_s=0.011, rescales=True)
"""docs/evidence/rescaling.md: a cold node's first step (median); pauses of joins and leaves (p99), in s."""
CHANGE_S = 2.0
"""Cost of a change that decisions assume then (s), as chosen on workloads 1 and 2."""
CATEGORIES = {
    "cifar10": (0, 1),
    "deepspeech2": (1, 10),
    "bert": (1, 10),
    "yolov3": (10, 100),
    "imagenet": (100, 1000),
}
"""Program -> GPU-hours of the jobs that it stands for (table 1)."""
MODES: tuple[dict[str, Any], ...] = ({}, {"declared": True, "shared": True})
ALLOCATORS = ("goodput", "optimus", "tiresias")
Jobs = Sequence[SubmittedJob]


def replayed(
    jobs: Jobs,
    name: str = "goodput",
    *,
    pauses: Pauses = PUBLISHED,
    tick_s: float = TICK_S,
    slowdown: float = 0.0,
    shared: bool = False,
    **settings: Any,
) -> dict[str, float]:
    """Completion times (s): mean, median and 99th percentile."""
    policy = policy_of(name, **settings)
    how: dict[str, Any] = {"pauses": pauses, "tick_s": tick_s, "slowdown": slowdown}
    found = run(jobs, CLUSTER, policy, fixed=FIXED, shared=shared, **how)
    spread: dict[str, float] = figures_of(found, CLUSTER)["completion_s"]
    return spread


def loaded(workloads: Sequence[Jobs], index: int, load: float) -> list[SubmittedJob]:
    """A workload with `load` times its jobs: every second one is left out, or those of the next come too."""
    own, other = workloads[index], workloads[(index + 1) % len(workloads)]
    more = [replace(job, name=f"{job.name}+") for job in other]
    found = {0.5: own[::2], 1.0: own, 1.5: [*own, *more[::2]], 2.0: [*own, *more]}[load]
    return sorted(found, key=lambda job: job.submitted)


def requested(path: Path) -> dict[str, list[int]]:
    """Program -> GPUs that real users asked for in jobs of its category, of those that the cluster has."""
    found = defaultdict(list)
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            hours, gpus = float(row["gpu_time"]) / 3600, int(row["num_gpus"])
            for program, (low, high) in CATEGORIES.items():
                if low < hours <= high and gpus <= CLUSTER.size:
                    found[program].append(gpus)
    return found


def best_batch(program: MeasuredProgram, workers: int) -> int:
    """The global batch that trains the program fastest to its end, of those measured."""
    limits, times = program.limits, {}
    for run_ in program.trainings:
        if run_.batch >= limits.local_least * workers:
            speeds = []
            for epoch in range(program.epochs):
                phi = noise_scale(limits.initial, *program.gradients(run_.batch, epoch))
                speeds.append(1 / float(gain(phi, limits.initial, run_.batch)))
            times[run_.batch] = iteration_s(program, run_.batch, workers, CLUSTER.gpus) * sum(speeds)
    return min(times, key=lambda batch: times[batch])


def as_users_do(jobs: Jobs, share: float, gpus: dict[str, list[int]], seed: int) -> list[SubmittedJob]:
    """The jobs, of which a share has the GPUs of a real job, and a batch within a factor of 2 of the best."""
    rng, found = random.Random(seed), []
    for job in jobs:
        asked, factor, chosen = rng.choice(gpus.get(job.program.name, [1])), rng.uniform(-1, 1), rng.random()
        if chosen >= share or job.program.name in FIXED:
            found.append(job)
            continue
        limits = job.program.limits
        workers = min(asked, limits.most // limits.local_least)
        least = max(limits.initial, workers * limits.local_least)
        batch = round(best_batch(job.program, workers) * 2**factor)
        found.append(replace(job, workers=workers, batch=min(limits.most, max(least, batch))))
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(f'{cell:,.3f}' if isinstance(cell, float) else str(cell) for cell in row)} |")


def pauses(workloads: dict[str, Jobs], traces: Path) -> None:
    """Completion times with the runtime's pauses, relative to Pollux's."""
    known = published(traces)
    pollux = [mean(known[f"workload-{name}", "pollux"].values()) for name in workloads]
    cases = {"restarts of 30 s, every 60 s": (PUBLISHED, PUBLISHED.change_s, 60.0)}
    cases |= {f"as measured, every {tick_s:g} s": (COLD, CHANGE_S, tick_s) for tick_s in (60.0, 10.0)}
    rows = []
    for name, (case, change_s, tick_s) in cases.items():
        how: dict[str, Any] = {"pauses": case, "change_s": change_s, "tick_s": tick_s, **MODES[1]}
        means = [replayed(jobs, **how)["mean"] for jobs in workloads.values()]
        row = (f"{found:,.0f}" for found in (*means, mean(means)))
        rows.append((name, *row, mean(means) / mean(pollux)))
    table(("pauses", *workloads, "mean", "relative to Pollux"), rows)


def load(workloads: dict[str, Jobs], traces: Path) -> None:
    """Figure 8."""
    all_, rows = list(workloads.values()), []
    for name in ALLOCATORS:
        means = []
        for factor in (0.5, 1.0, 1.5, 2.0):
            means.append(mean(replayed(loaded(all_, i, factor), name)["mean"] for i in range(len(all_))))
        rows.append((name, *(f"{found:,.0f}" for found in means), means[-1] / means[1]))
    table(("allocator", "0.5", "1", "1.5", "2", "2 over 1"), rows)


def weights(workloads: dict[str, Jobs], traces: Path) -> None:
    """Table 3, and the ranks that we use in place of weights."""
    cases: dict[str, dict[str, Any]] = {
        f"weighted, lambda {decay}": {"aim": GoodputAim.WEIGHTED, "decay": decay} for decay in (0.0, 0.5, 1.0)
    }
    cases["ranked"] = {}
    rows, first = [], None
    for name, settings in cases.items():
        found = [replayed(jobs, **settings) for jobs in workloads.values()]
        means = [mean(one[key] for one in found) for key in ("mean", "p50", "p99")]
        first = first or means
        rows.append((name, *(own / base for own, base in zip(means, first, strict=True))))
    table(("weights", "mean", "median", "p99"), rows)


def powers(workloads: dict[str, Jobs], traces: Path) -> None:
    """The power of ranked speed-ups."""
    rows = []
    for power in (0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0):
        found = (
            mean(replayed(jobs, power=power, **mode)["mean"] for jobs in workloads.values()) for mode in MODES
        )
        rows.append((power, *(f"{one:,.0f}" for one in found)))
    table(("power", "nothing known", "declared epochs, shared profiles"), rows)


def users(workloads: dict[str, Jobs], traces: Path) -> None:
    """Figure 7."""
    gpus = requested(traces / "traces" / "philly.csv.xz")
    rows = []
    for share in (0.0, 0.5, 1.0):
        jobs = [as_users_do(own, share, gpus, seed) for seed, own in enumerate(workloads.values())]
        means = [mean(replayed(own, name)["mean"] for own in jobs) for name in ALLOCATORS]
        relative = (found / means[0] for found in means[1:])
        rows.append((f"{share:.0%}", *(f"{found:,.0f}" for found in means), *relative))
    over = (f"{name} over goodput" for name in ALLOCATORS[1:])
    table(("as users do", *ALLOCATORS, *over), rows)


def interference(workloads: dict[str, Jobs], traces: Path) -> None:
    """Figure 9."""
    rows = []
    for apart in (True, False):
        means = [
            mean(replayed(jobs, apart=apart, slowdown=slowdown)["mean"] for jobs in workloads.values())
            for slowdown in (0.0, 0.25, 0.5)
        ]
        rows.append(("kept apart" if apart else "anywhere", *(f"{found:,.0f}" for found in means)))
    table(("jobs of several nodes", "no slowdown", "25 %", "50 %"), rows)


SWEEPS = {
    "pauses": pauses,
    "load": load,
    "weights": weights,
    "powers": powers,
    "users": users,
    "interference": interference,
}


def main() -> None:
    """Replay, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("what", choices=SWEEPS)
    parser.add_argument("--workloads", nargs="+", default=["1", "2", "3", "4"])
    options = parser.parse_args()
    read: dict[str, Jobs] = {
        name: read_jobs(options.traces / "workloads" / f"workload-{name}.csv", options.traces / "traces")
        for name in options.workloads
    }
    SWEEPS[options.what](read, options.traces)


if __name__ == "__main__":
    main()
