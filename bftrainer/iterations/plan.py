"""Plans of one interval: from jobs, devices and an order to tasks and the state that they lead to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bftrainer.iterations import kernel
from bftrainer.iterations.kernel import Timetable
from bftrainer.iterations.model import (
    Flags,
    Floats,
    Ints,
    IterationJob,
    PlannedTasks,
    PlanRules,
    SharedDevices,
)
from bftrainer.iterations.orders import JobsWaiting, Order, would_end_last


@dataclass(frozen=True)
class SharedState:
    """The jobs, the devices, and where both stand at `now` (s). `attained` and `ran` have one entry a job."""

    jobs: tuple[IterationJob, ...]
    devices: SharedDevices
    rules: PlanRules
    now: float
    table: Timetable
    attained: Floats
    ran: Flags

    @cached_property
    def arrived(self) -> Ints:
        """The jobs that have come and not ended, by number."""
        here = (np.array([job.arrival for job in self.jobs]) <= self.now) & np.isinf(self.table.jobs["ended"])
        return np.flatnonzero(here)


def begin(jobs: Sequence[IterationJob], devices: SharedDevices, rules: PlanRules) -> SharedState:
    """The state before any job has run, at the time 0."""
    tasks = [task for job in jobs for task in job.tasks]
    counts = np.array([len(job.tasks) for job in jobs])
    workers, own = np.zeros(len(tasks), kernel.WORKER), np.zeros(len(jobs), kernel.JOB)
    workers["job"] = np.repeat(np.arange(len(jobs)), counts)
    workers["seconds"] = [task.seconds for task in tasks]
    workers["memory"] = [task.memory_gb for task in tasks]
    workers["home"] = -1
    own["end"] = np.cumsum(counts)
    own["first"] = own["end"] - counts
    own["missing"] = counts
    own["left"] = [job.iterations for job in jobs]
    own["model"] = [job.model_gb for job in jobs]
    own["move"] = rules.gamma_s_per_gb * own["model"]
    own["exchange"] = [job.exchange_s for job in jobs]
    own["ended"] = np.inf
    workers["ready"] = np.array([job.arrival for job in jobs])[workers["job"]]
    shared = np.zeros(devices.count, kernel.DEVICE)
    shared["running"] = -1
    table = Timetable(workers, own, shared)
    return SharedState(
        tuple(jobs), devices, rules, 0.0, table, np.zeros(len(jobs)), np.zeros(len(jobs), bool)
    )


def plan(state: SharedState, order: Order) -> tuple[PlannedTasks, SharedState]:
    """Plan the next interval: which task starts when, and on which device.

    Of equal keys, the workers of earlier jobs come first. Where jobs wait for each other's memory, all let go
    of it, and the one that comes first begins.
    """
    table = Timetable(*(array.copy() for array in state.table))
    workers, devices = table.workers, table.devices
    until = state.now + state.rules.interval_s
    slots, jobs = waiting_jobs(state)
    ranked = slots[np.argsort(order(jobs), kind="stable")] if len(slots) else slots
    if _wait_for_each_other(state, jobs):
        held = slots[workers["home"][slots] >= 0]
        np.subtract.at(devices["resident"], workers["home"][held], table.jobs["model"][workers["job"][held]])
        workers["left"][held] = workers["home"][held]
        workers["home"][slots] = -1
        first = workers["job"][ranked] == workers["job"][ranked[0]]
        ranked = np.concatenate([ranked[first], ranked[~first]])
    workers["rank"][ranked] = np.arange(len(ranked))
    late = state.arrived[would_end_last(jobs)] if state.rules.keep else np.zeros(0, np.int64)
    table.jobs["late"] = np.isin(np.arange(len(state.jobs)), late)
    fastest = workers["seconds"][slots].min(initial=state.rules.interval_s)
    records = np.empty(int(len(devices) * (state.rules.interval_s / fastest + 2)), kernel.TASK)
    for field in ("largest", "at_home", "stamp"):
        devices[field] = 0
    placed = workers[(workers["home"] >= 0) & (workers["phase"] != kernel.OVER)]
    own = placed[table.jobs["late"][placed["job"]]]
    devices["kept"] = -1
    first = np.argsort(-own["rank"], kind="stable")  # of two, the one that comes first
    devices["kept"][own["home"][first]] = own["job"][first]
    np.maximum.at(devices["largest"], placed["home"], placed["memory"])
    count = kernel.plan_interval(
        *table,
        ranked,
        records,
        state.now,
        until,
        state.rules.apart,
        state.rules.weigh,
        state.devices.memory_gb,
    )
    tasks = PlannedTasks(*(records[:count][name].copy() for name in kernel.TASK.names or ()))
    had = np.bincount(
        workers["job"][tasks.slot], weights=workers["seconds"][tasks.slot], minlength=len(state.jobs)
    )
    return tasks, SharedState(
        state.jobs, state.devices, state.rules, until, table, state.attained + had, had > 0
    )


def _wait_for_each_other(state: SharedState, jobs: JobsWaiting) -> bool:
    """True if none goes on because each holds memory that others lack: in the whole last interval no task
    ran, and each job that could have run in it has a worker that fits nowhere."""
    workers = state.table.workers
    before = state.arrived[jobs.arrival <= state.now - state.rules.interval_s]
    if not len(before) or state.ran.any() or (state.table.devices["running"] >= 0).any():
        return False
    return bool(np.isin(before, workers["job"][workers["home"] < 0]).all())


def waiting_jobs(state: SharedState) -> tuple[Ints, JobsWaiting]:
    """Input of orders on the jobs that have come; with the workers of these, over all jobs."""
    workers, here = state.table.workers, state.arrived
    slots = np.flatnonzero(np.isin(workers["job"], here))
    left = state.table.jobs["left"][here]
    jobs = [state.jobs[number] for number in here]
    need = workers["seconds"] / workers["seconds"].max() * workers["memory"] / workers["memory"].max()
    return slots, JobsWaiting(
        arrival=np.array([job.arrival for job in jobs]),
        remaining=left * np.array([job.iteration_s for job in jobs]),
        work=left * np.array([job.work_s / job.iterations for job in jobs]),
        attained=state.attained[here],
        ran=state.ran[here],
        job=np.searchsorted(here, workers["job"][slots]),
        product=need[slots],
        devices=state.devices.count,
        interval_s=state.rules.interval_s,
    )
