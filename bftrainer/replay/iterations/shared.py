"""Replays in which devices are shared by iteration: a plan of each interval follows the one before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bftrainer.errors import BftrainerError
from bftrainer.iterations.model import Floats, IterationJob, PlanRules, SharedDevices
from bftrainer.iterations.orders import Order
from bftrainer.iterations.plan import begin, plan
from bftrainer.iterations.search import best_order
from bftrainer.messages.files.replays import NEVER_ENDS

LONGEST_S = 366 * 86_400.0
"""A replay that lasts longer is taken for one that never ends."""


class NeverEndsError(BftrainerError):
    """A job that cannot run on these devices, or would not end. The message names it."""


@dataclass(frozen=True, slots=True)
class JobsReplayed:
    """The outcome: when jobs came and ended (s), device time (s), tasks or starts, and how many moved."""

    arrival: Floats
    ended: Floats
    busy_s: float
    starts: int
    moves: int
    decisions_s: tuple[float, ...]


def check(jobs: Sequence[IterationJob], devices: SharedDevices) -> None:
    """Raise `NeverEndsError` for a job that these devices could never run."""
    for number, job in enumerate(jobs):
        if len(job.tasks) > devices.count:
            why = f"has {len(job.tasks)} workers for {devices.count} devices"
            raise NeverEndsError(NEVER_ENDS.say(jobs=f"job {number}", why=why, more="more devices"))
        most = job.model_gb + max(task.memory_gb for task in job.tasks)
        if most > devices.memory_gb:
            why = f"needs {most:.1f} GB of a device with {devices.memory_gb:g}"
            raise NeverEndsError(NEVER_ENDS.say(jobs=f"job {number}", why=why, more="more memory"))


def share(
    jobs: Sequence[IterationJob],
    devices: SharedDevices,
    rules: PlanRules,
    order: Order,
    progress: Callable[[float], None] = lambda done: None,
) -> JobsReplayed:
    """Replay the jobs to their ends.

    Raises:
        NeverEndsError: a job cannot run, or the replay would not end.
    """
    check(jobs, devices)
    state = begin(jobs, devices, rules)
    busy, starts, moves, took = 0.0, 0, 0, []
    total = sum(job.work_s for job in jobs)
    while np.isinf(state.table.jobs["ended"]).any():
        if state.now > LONGEST_S:
            count = np.isinf(state.table.jobs["ended"]).sum()
            why, more = "have not ended after a year", "more devices"
            raise NeverEndsError(NEVER_ENDS.say(jobs=f"{count} jobs", why=why, more=more))
        started = time.perf_counter()
        tasks, state = plan(state, best_order(state, order) if rules.search else order)
        took.append(time.perf_counter() - started)
        busy += float(state.table.workers["seconds"][tasks.slot].sum())
        starts += len(tasks.slot)
        moves += int(tasks.moved.sum())
        progress(min(1.0, busy / total))
    return JobsReplayed(
        np.array([job.arrival for job in jobs]), state.table.jobs["ended"], busy, starts, moves, tuple(took)
    )
