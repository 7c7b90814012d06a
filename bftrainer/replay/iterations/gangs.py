"""Replays in which a job's workers run all at once, each with a device to itself: Tiresias and Gandiva."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from bftrainer.iterations.model import Flags, Floats, Ints, IterationJob, PlanRules, SharedDevices
from bftrainer.iterations.orders import JobsWaiting, Order
from bftrainer.replay.iterations.shared import JobsReplayed, check

Choose = Callable[[JobsWaiting, Ints], Flags]
"""From the jobs that have come and their workers: those that run now."""


def in_order(order: Order) -> Choose:
    """Jobs in an order, each that finds room beside those before it."""

    def choose(jobs: JobsWaiting, workers: Ints) -> Flags:
        keys = np.full(len(workers), np.inf)
        np.minimum.at(keys, jobs.job, order(jobs))
        return _fitting(np.argsort(keys, kind="stable"), workers, jobs.devices)

    return choose


def packed(jobs: JobsWaiting, workers: Ints) -> Flags:
    """Gandiva as Tiresias's public simulator has it: sets of devices, on which jobs of one size take turns.

    Each size has as many sets as its part of all devices that are asked for holds, one at least; of its jobs
    those run that had least time.
    """
    wanted = int(workers.sum())
    runs = np.zeros(len(workers), bool)
    room = jobs.devices
    for size in sorted(set(workers.tolist()), reverse=True):
        own = np.flatnonzero(workers == size)
        part = min(1.0, jobs.devices / wanted) * size * len(own)
        sets = min(len(own), max(1, int(part + 1e-9) // size), room // size)
        turn = np.lexsort((jobs.arrival[own], ~jobs.ran[own], jobs.attained[own]))[:sets]
        runs[own[turn]] = True
        room -= sets * size
    return runs


def _fitting(ranked: Ints, workers: Ints, room: int) -> Flags:
    runs = np.zeros(len(workers), bool)
    for number in ranked:
        if workers[number] <= room:
            runs[number] = True
            room -= int(workers[number])
    return runs


def gang(
    jobs: Sequence[IterationJob],
    devices: SharedDevices,
    rules: PlanRules,
    choose: Choose,
    progress: Callable[[float], None] = lambda done: None,
) -> JobsReplayed:
    """Replay the jobs; at each arrival, each end and after each interval `choose` says which run.

    A job that did not run before stands still for the move of its model.

    Raises:
        NeverEndsError: a job cannot run.
    """
    check(jobs, devices)
    arrival = np.array([job.arrival for job in jobs])
    workers = np.array([len(job.tasks) for job in jobs])
    each = np.array([job.iteration_s for job in jobs])
    used = np.array([sum(task.seconds for task in job.tasks) for job in jobs])
    pause = rules.gamma_s_per_gb * np.array([job.model_gb for job in jobs])
    left = np.array([float(job.iterations) for job in jobs]) * each
    product = np.array([max(task.seconds * task.memory_gb for task in job.tasks) for job in jobs])
    stopped, attained, ended = np.zeros((3, len(jobs)))
    ended += np.inf
    ran = np.zeros(len(jobs), bool)
    now, starts, took = 0.0, 0, []
    while np.isinf(ended).any():
        here = np.flatnonzero((arrival <= now) & np.isinf(ended))
        waiting = JobsWaiting(
            arrival=arrival[here],
            remaining=left[here],
            work=left[here] / each[here] * used[here],
            attained=attained[here],
            ran=ran[here],
            job=np.arange(len(here)),
            product=product[here],
            devices=devices.count,
            interval_s=rules.interval_s,
        )
        begun = time.perf_counter()
        runs = here[choose(waiting, workers[here])] if len(here) else here
        took.append(time.perf_counter() - begun)
        fresh = runs[~ran[runs]]
        stopped[fresh] = pause[fresh]
        starts += len(fresh)
        ran[:] = False
        ran[runs] = True
        until = _next(now, rules.interval_s, arrival, stopped[runs] + left[runs])
        step = until - now
        trained = np.maximum(0.0, step - stopped[runs])
        stopped[runs] = np.maximum(0.0, stopped[runs] - step)
        left[runs] -= trained
        attained[runs] += step * workers[runs]
        now = until
        over = runs[left[runs] <= 1e-6]
        ended[over] = now
        ran[over] = False
        progress(1.0 - float(np.isinf(ended).mean()))
    busy = float((used * [job.iterations for job in jobs]).sum())
    return JobsReplayed(arrival, ended, busy, starts, starts - len(jobs), tuple(took))


def _next(now: float, interval_s: float, arrival: Floats, ends: Floats) -> float:
    """The next moment at which something changes: an end, an arrival, or the interval's end."""
    coming = arrival[arrival > now]
    soonest = min(float(ends.min(initial=np.inf)) + now, float(coming.min(initial=np.inf)))
    return min(soonest, (now // interval_s + 1) * interval_s)
