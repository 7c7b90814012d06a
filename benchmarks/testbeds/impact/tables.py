"""The comparison of runs as Markdown. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.testbeds.impact.differences import (
    FIGURES,
    MODES,
    WITH,
    WITHOUT,
    Difference,
    JobWaits,
    Pair,
    difference,
    over_pairs,
)
from benchmarks.testbeds.runs import MainRun, spread, utilisation, waits

GOALS: Mapping[str, float] = {"median": 0.2, "mean": 0.3, "p99": 1.0}
"""Seconds that main jobs may be later by, beyond what two runs without differ by; in the median of pairs."""
WAITS = ("median", "mean", "p90", "p99", "most")


@dataclass(frozen=True, slots=True)
class Runs:
    """The three runs of a seed: mode -> what `Outcome` has, and mode -> main jobs."""

    outcomes: Mapping[str, Mapping[str, Any]]
    jobs: Mapping[str, Sequence[MainRun]]


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table's lines."""
    return [row(*head), f"|{'---|' * len(head)}", *(row(*cells) for cells in rows)]


def waits_table(runs: Sequence[Runs]) -> list[str]:
    """Return what jobs waited in each run: medians over pairs, of `most` the most of all."""
    spreads = {mode: [s for one in runs if (s := spread(waits(one.jobs[mode])))] for mode in MODES}

    def cell(mode: str, name: str) -> str:
        """Return one figure of one mode."""
        values = [getattr(found, name) for found in spreads[mode]]
        if not values:
            return "-"
        return f"{max(values) if name == 'most' else statistics.median(values):.2f} s"

    head = ("a main job's wait", "without", "without, again", "with")
    return table(head, ((name, *(cell(mode, name) for mode in MODES)) for name in WAITS))


def differences_table(pairs: Sequence[Pair]) -> list[str]:
    """Return by how much jobs were later: medians over pairs, and the worst pair."""
    rows = []
    for name in FIGURES:
        later, noise, beyond = (over_pairs(pairs, name, part) for part in ("later", "noise", "beyond"))
        told = sum(not pair.figures[name].is_noise for pair in pairs)
        worst = f"{beyond.worst:+.2f} s (seed {beyond.seed})"
        cells = (f"{later.median:+.2f} s", f"{noise.median:+.2f} s", f"{beyond.median:+.2f} s", worst)
        rows.append((name, *cells, f"{told} of {len(pairs)}"))
    head = ("later by", "with", "without, again", "beyond", "worst pair", "more than noise")
    return table(head, rows)


def kinds_table(pairs: Sequence[Pair]) -> list[str]:
    """Return the same for each kind of job, of all pairs together."""
    kinds: dict[str, list[JobWaits]] = {}
    for pair in pairs:
        for job in pair.jobs:
            kinds.setdefault(job.kind, []).append(job)
    rows = []
    for kind, jobs in sorted(kinds.items()):
        median, mean = difference(jobs, "median"), difference(jobs, "mean")
        most = max(jobs, key=lambda job: job.beyond)
        figures = (f"{median.later.value:+.2f} s", mean_words(mean), f"{mean.noise.value:+.2f} s")
        rows.append((kind, str(len(jobs)), *figures, f"{most.beyond:+.2f} s"))
    head = ("kind", "jobs", "median later", "mean later (95 %)", "mean, without again", "most, beyond both")
    return table(head, rows)


def mean_words(found: Difference) -> str:
    """Return a difference with its interval, and whether it is noise."""
    words = f"{found.later.value:+.2f} s"
    if found.later.low is not None and found.later.high is not None:
        words += f" ({found.later.low:+.2f} to {found.later.high:+.2f})"
    return words + (", noise" if found.is_noise else "")


def utilisation_table(runs: Sequence[Runs], gpus: Sequence[Mapping[int, float]] = ()) -> list[str]:
    """Return whose the nodes were: medians over pairs, shares of all node-time. And whose the GPUs were,
    where `gpus` has for each pair how many nodes' worth of them a task of each job had."""

    def share(mode: str, *names: str) -> str:
        """Return the sum of some shares."""
        return f"{statistics.median(sum(one.outcomes[mode][n] for n in names) for one in runs):.1%}"

    modes = (WITHOUT, WITH)
    rows = [
        ("used by main jobs", *(share(mode, "main") for mode in modes)),
        ("used in all", *(share(mode, "main", "trained") for mode in modes)),
        ("held by pilots", *(share(mode, "held") for mode in modes)),
    ]
    if gpus and all(gpus):
        main = {
            mode: [gpus_used(one, mode, own) for one, own in zip(runs, gpus, strict=True)] for mode in modes
        }
        trained = {mode: [one.outcomes[mode]["trained"] for one in runs] for mode in modes}
        both = {mode: map(sum, zip(main[mode], trained[mode], strict=True)) for mode in modes}
        rows += [
            ("GPUs that main jobs had", *(f"{statistics.median(main[mode]):.1%}" for mode in modes)),
            ("GPUs in use in all", *(f"{statistics.median(both[mode]):.1%}" for mode in modes)),
        ]
    return table(("node-time", *modes), rows)


def gpus_used(one: Runs, mode: str, gpus: Mapping[int, float]) -> float:
    """Return the share of all GPU-time that main jobs had."""
    outcome = one.outcomes[mode]
    jobs = [replace(run, size=gpus[run.number]) for run in one.jobs[mode]]
    return utilisation(jobs, outcome["nodes"], outcome["begin"], outcome["end"])


def states(runs: Sequence[Runs]) -> str:
    """Return how many main jobs ended in which state, in the runs with, and how many were requeued."""
    every = [run for one in runs for run in one.jobs[WITH]]
    counts = {state: sum(run.state == state for run in every) for state in sorted({r.state for r in every})}
    return ", ".join(f"{count} {state.lower() or 'unknown'}" for state, count in counts.items())


def goals(pairs: Sequence[Pair], failed: int, requeued: int) -> dict[str, bool]:
    """Return each goal in words, and whether it is kept."""
    found = {}
    for name, most in GOALS.items():
        beyond = over_pairs(pairs, name, "beyond").median
        found[f"{name} later by less than {most:g} s beyond noise: {beyond:+.2f} s"] = beyond < most
    return {
        **found,
        f"no main job failed: {failed}": failed == 0,
        f"none was requeued: {requeued}": requeued == 0,
    }
