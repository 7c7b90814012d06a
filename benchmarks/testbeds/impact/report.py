"""Reports pairs of runs in words and tables, with the reasons of late jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.testbeds.impact import tables
from benchmarks.testbeds.impact.condition import Condition
from benchmarks.testbeds.impact.differences import MODES, WITH, Pair, compare
from benchmarks.testbeds.impact.reasons import Late, explain, requeued, timeline
from benchmarks.testbeds.impact.tables import Runs
from benchmarks.testbeds.impact.taking import Taken
from benchmarks.testbeds.runs import MainRun

GOOD = "COMPLETED"
SHOWN = 12
"""Late jobs of all pairs that are listed with their reasons."""


@dataclass(frozen=True, slots=True)
class Report:
    """The comparison in Markdown, and whether every goal is kept."""

    text: str
    kept: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """Findings of one pair: late jobs, and those of the run with bftrainer that failed or were requeued."""

    pair: Pair
    late: list[Late]
    failed: list[MainRun]
    requeued: list[MainRun]


def runs_of(pairs: Mapping[int, Mapping[str, Taken]]) -> list[Runs]:
    """Return the runs of all pairs, for tables and pictures."""
    return [
        Runs({m: found[m].outcome for m in MODES}, {m: found[m].runs for m in MODES})
        for found in pairs.values()
    ]


def _seen(condition: Condition, seed: int, found: Mapping[str, Taken]) -> _Seen:
    runs = {mode: found[mode].runs for mode in MODES}
    pair, events = compare(seed, runs), condition.events(found[WITH].logs)
    failed = [run for run in runs[WITH] if run.state != GOOD]
    return _Seen(pair, explain(pair, runs, events), failed, requeued(events, runs[WITH]))


def of_pair(condition: Condition, seed: int, found: Mapping[str, Taken]) -> str:
    """Return a pair in few lines."""
    seen = _seen(condition, seed, found)
    figures = ", ".join(f"{name} {part.later.value:+.2f} s" for name, part in seen.pair.figures.items())
    noise = ", ".join(f"{part.noise.value:+.2f} s" for part in seen.pair.figures.values())
    head = f"seed {seed}: later by {figures}; between the runs without {noise}"
    return "\n".join([head, *_bad(seen), *(_words(seed, late) for late in seen.late)])


def of_jobs(condition: Condition, seed: int, found: Mapping[str, Taken]) -> str:
    """Return a line for each job of a pair, with what happened while it waited."""
    lines = timeline({mode: found[mode].runs for mode in MODES}, condition.events(found[WITH].logs))
    return "\n".join([f"seed {seed}: waits without / again / with", *lines])


def of_pairs(condition: Condition, pairs: Mapping[int, Mapping[str, Taken]]) -> Report:
    """Return what all pairs of a condition show."""
    every = [_seen(condition, seed, found) for seed, found in pairs.items()]
    runs, compared = runs_of(pairs), [seen.pair for seen in every]
    failed, again = sum(len(s.failed) for s in every), sum(len(s.requeued) for s in every)
    goals = tables.goals(compared, failed, again)
    blocks = [
        [_title(condition, pairs)],
        tables.waits_table(runs),
        tables.differences_table(compared),
        tables.kinds_table(compared),
        tables.utilisation_table(runs, [condition.gpus(seed) for seed in pairs]),
        [f"Main jobs with bftrainer: {tables.states(runs)}; {again} requeued."],
        [line for seen in every for line in _bad(seen)],
        _late(every),
        [f"- {'kept' if kept else '**missed**'}: {words}" for words, kept in goals.items()],
    ]
    return Report("\n\n".join("\n".join(block) for block in blocks if block), all(goals.values()))


def _title(condition: Condition, pairs: Mapping[int, Mapping[str, Taken]]) -> str:
    words = [condition.title()]
    seeds = ", ".join(map(str, pairs))
    words += [f"1 pair (seed {seeds})" if len(pairs) == 1 else f"{len(pairs)} pairs (seeds {seeds})"]
    commits = sorted({taken.commit for found in pairs.values() for taken in found.values()} - {""})
    return f"{'; '.join(words)}. Commit {', '.join(commits) or 'unknown'}."


def _bad(seen: _Seen) -> list[str]:
    """Jobs that failed, were requeued, or did not start in each run."""
    seed = seen.pair.seed
    found = [f"- seed {seed}: main-{run.number} ({run.kind}) ended {run.state or '?'}" for run in seen.failed]
    found += [f"- seed {seed}: main-{run.number} ({run.kind}) was requeued" for run in seen.requeued]
    return found + [
        f"- seed {seed}: main-{n}.{task} did not start in each run" for n, task in seen.pair.missing
    ]


def _late(every: list[_Seen]) -> list[str]:
    """The reasons of late jobs, counted, then the latest jobs with theirs."""
    late = [(seen.pair.seed, job) for seen in every for job in seen.late]
    if not late:
        return ["No job started over a second later than in both runs without."]
    counts = Counter(job.why[0].reason for _, job in late)
    total = sum(len(seen.pair.jobs) for seen in every)
    head = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    late.sort(key=lambda item: -item[1].job.beyond)
    return [
        f"{len(late)} of {total} jobs started over a second later than in both runs without: {head}.",
        *(_words(seed, job) for seed, job in late[:SHOWN]),
    ]


def _words(seed: int, late: Late) -> str:
    job = late.job
    task = f".{job.task}" if job.kind == "array" else ""
    waited = f"{job.with_:.1f} s instead of {job.without:.1f} and {job.again:.1f} s"
    why = "; ".join(f"{why.reason}: {why.words}" for why in late.why)
    return f"- seed {seed}, main-{job.number}{task} (job {late.run.id}, {job.kind}) waited {waited}: {why}"
