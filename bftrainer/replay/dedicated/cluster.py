"""A dedicated cluster, replayed in ticks: jobs train for one, then a policy places them again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.replays import NEVER_ENDS
from bftrainer.replay.dedicated.job import PUBLISHED, Nodes, Pauses, Profile, RunningJob
from bftrainer.replay.dedicated.workload import SubmittedJob

TICK_S = 60.0
"""Time from decision to decision, as the authors' simulator has it, unless a replay says otherwise."""
LONGEST_S = 2 * 366 * 86_400.0
"""A replay that lasts longer is taken for one that never ends."""
Held = dict[str, Nodes]
"""Job -> the node of each of its workers, those of a node in a row; jobs without any are absent."""


class StuckError(BftrainerError):
    """A replay that would not end. The message names a job that does not."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """A cluster of alike nodes: how many, and how many GPUs each has."""

    nodes: int
    gpus: int

    @property
    def size(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus


class ClusterPolicy(Protocol):
    """Decides after each tick which workers a job has, and where.

    What it `fixes` is as users ask for it. With `fills_memory`, batches are as large as workers' memory.
    """

    fixes_workers: bool
    fixes_batch: bool
    fills_memory: bool

    def decide(self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape) -> Held:
        """Workers of the jobs that have not ended, in submission order; those that keep theirs go on."""


@dataclass(frozen=True, slots=True)
class ReplayedJobs:
    """The outcome: jobs in their order, when the last ended (s), and the time (s) that each decision took.

    `nodes`: on how many nodes jobs were after each decision, one tick apart while any job was there.
    """

    jobs: tuple[RunningJob, ...]
    end: float
    decisions_s: tuple[float, ...]
    nodes: tuple[int, ...]
    tick_s: float


def run(
    jobs: Sequence[SubmittedJob],
    cluster: ClusterShape,
    policy: ClusterPolicy,
    *,
    fixed: frozenset[str] = frozenset(),
    shared: bool = False,
    pauses: Pauses = PUBLISHED,
    tick_s: float = TICK_S,
    slowdown: float = 0.0,
    progress: Callable[[float], None] = lambda done: None,
) -> ReplayedJobs:
    """Replay the jobs to their ends. Jobs of a program in `fixed` keep what their users asked for under every
    policy; with `shared`, jobs of one program share the times that they measure. Every `tick_s` it decides.
    Jobs of several nodes that share one lose the part `slowdown` of their speed.

    Raises:
        StuckError: it would not end.
        ProfileError: a job comes to where nothing was measured.
    """
    too_large = [job for job in jobs if policy.fixes_workers and job.workers > cluster.size]
    if too_large:
        name, workers = too_large[0].name, too_large[0].workers
        why = f"asks for {workers} of {cluster.size} GPUs"
        raise StuckError(NEVER_ENDS.say(jobs=f"job {name!r}", why=why, more="a larger --cluster"))
    profiles: dict[str, Profile] = {}
    all_ = [_waiting(job, policy, profiles, hold=job.program.name in fixed, shared=shared) for job in jobs]
    now, held, took, on = 0.0, Held(), [], []
    while unfinished := [job for job in all_ if job.ended is None]:
        if now > LONGEST_S:
            who, why = f"job {unfinished[0].job.name!r}", f"has not ended after {now / 86400:.0f} days"
            raise StuckError(NEVER_ENDS.say(jobs=who, why=why, more="a larger --cluster"))
        active = [job for job in unfinished if job.job.submitted <= now]
        if not active:
            first = min(job.job.submitted for job in unfinished)
            now = max(now + tick_s, tick_s * -(-first // tick_s))
            continue
        begin = time.perf_counter()
        chosen = policy.decide(now, active, held, cluster)
        took.append(time.perf_counter() - begin)
        for job in active:
            nodes = chosen.get(job.job.name, ())
            if nodes != held.get(job.job.name, ()):
                job.place(nodes, pauses)
        held = chosen
        on.append(len({node for nodes in held.values() for node in nodes}))
        meeting = meet(held) if slowdown else set()
        for job in active:
            job.slowed = slowdown if job.job.name in meeting else 0.0
            job.advance(now, tick_s)
        now += tick_s
        held = {
            job.job.name: held[job.job.name] for job in active if job.ended is None and job.job.name in held
        }
        progress(sum(job.epoch / job.program.epochs for job in all_) / len(all_))
    return ReplayedJobs(tuple(all_), max(job.ended or 0.0 for job in all_), tuple(took), tuple(on), tick_s)


def meet(held: Held) -> set[str]:
    """The jobs on several nodes that share one of these with another such job."""
    spread = {name: set(nodes) for name, nodes in held.items() if len(set(nodes)) > 1}
    on = Counter(node for nodes in spread.values() for node in nodes)
    return {name for name, nodes in spread.items() if any(on[node] > 1 for node in nodes)}


def _waiting(
    job: SubmittedJob, policy: ClusterPolicy, profiles: dict[str, Profile], *, hold: bool, shared: bool
) -> RunningJob:
    """A job before its first start; with `hold` it keeps what its user asks for."""
    profile = profiles.setdefault(job.program.name if shared else job.name, Profile())
    return RunningJob(
        job,
        profile,
        workers=job.workers if hold or policy.fixes_workers else None,
        batch=job.batch if hold or policy.fixes_batch else None,
        fills=policy.fills_memory,
    )


def figures_of(replayed: ReplayedJobs, cluster: ClusterShape) -> dict[str, Any]:
    """Completion times (s, from submission to end), restarts, GPU time and the time that decisions took."""
    completion = {job.job.name: float(job.ended or 0.0) - job.job.submitted for job in replayed.jobs}
    by_program: dict[str, list[float]] = {}
    for job in replayed.jobs:
        by_program.setdefault(job.program.name, []).append(completion[job.job.name])
    busy = sum(job.gpu_s for job in replayed.jobs)
    return {
        "jobs": len(completion),
        "completion_s": _spread(list(completion.values())),
        "end_s": replayed.end,
        "gpu_hours": busy / 3600,
        "node_hours": sum(replayed.nodes) * replayed.tick_s / 3600,
        "gpus_busy": busy / (cluster.size * replayed.end),
        "restarts": sum(job.starts - 1 for job in replayed.jobs),
        "decisions": len(replayed.decisions_s),
        "decision_ms": _spread([1e3 * taken for taken in replayed.decisions_s]),
        "completion_by_program_s": {name: _spread(times) for name, times in sorted(by_program.items())},
        "completion_by_job_s": completion,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median, 99th percentile and maximum."""
    p50, p99, largest = (float(value) for value in np.percentile(values, (50, 99, 100)))
    return {"mean": float(np.mean(values)), "p50": p50, "p99": p99, "max": largest}
