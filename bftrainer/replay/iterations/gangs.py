"""Replays in which a job's workers run all at once, each with a device to itself: Tiresias and Gandiva."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from bftrainer.iterations.model import Flags, Floats, Ints, IterationJob, PlanRules, SharedDevices
from bftrainer.iterations.orders import JobsWaiting, Order
from bftrainer.replay.iterations.shared import JobsReplayed, check

Choose = Callable[[JobsWaiting, Ints, Ints, float], Flags]
"""Maps the jobs that have come, their numbers and workers, and the time (s) to those that run now."""


def in_order(order: Order) -> Choose:
    """Jobs in an order, each that finds room beside those before it."""

    def choose(jobs: JobsWaiting, numbers: Ints, workers: Ints, now: float) -> Flags:
        keys = np.full(len(workers), np.inf)
        np.minimum.at(keys, jobs.job, order(jobs))
        return _fitting(np.argsort(keys, kind="stable"), workers, jobs.devices)

    return choose


class NodeSets:
    """Gandiva as Tiresias's public simulator has it: sets of devices for each size, each with a queue of jobs
    of which the first runs. After each interval the next has its turn.

    A job gets free devices, or goes to the shortest queue of its size, or waits. A size should have as many
    sets as its part of all devices that are asked for holds. When it gets one, its jobs are redistributed;
    those of one that it gives up join the other queues.
    """

    def __init__(self) -> None:
        self._queues: dict[int, list[list[int]]] = {}
        self._interval = 0.0

    def __call__(self, jobs: JobsWaiting, numbers: Ints, workers: Ints, now: float) -> Flags:
        """The first job of each set's queue."""
        sizes = dict(zip(numbers.tolist(), workers.tolist(), strict=True))
        turn = int(now // jobs.interval_s != self._interval)
        self._interval = now // jobs.interval_s
        for size, queues in self._queues.items():
            left = [[number for number in queue if number in sizes] for queue in queues]
            self._queues[size] = [queue[turn:] + queue[:turn] for queue in left if queue]
        placed = {number for queues in self._queues.values() for queue in queues for number in queue}
        for number, size in sizes.items():
            queues = self._queues.setdefault(size, [])
            if number not in placed and self._room(jobs.devices) >= size:
                queues.append([number])
            elif number not in placed and queues:
                min(queues, key=len).append(number)
        for size in sorted(self._queues):
            self._adjust(size, jobs.devices)
        first = [queue[0] for queues in self._queues.values() for queue in queues if queue]
        runs: Flags = np.isin(numbers, first)
        return runs

    def _room(self, devices: int) -> int:
        return devices - sum(size * len(queues) for size, queues in self._queues.items())

    def _adjust(self, size: int, devices: int) -> None:
        """Give a size sets as long as there is room, or take those with the shortest queues."""
        asked = {size: size * sum(map(len, queues)) for size, queues in self._queues.items()}
        queues = sorted(self._queues[size], key=len)
        part = min(devices * asked[size] // max(1, sum(asked.values())), asked[size]) - size * len(queues)
        if part > 0:
            added = min(-(-part // size), self._room(devices) // size)
            moving = [number for queue in queues for number in queue] if added else []
            queues = [[] for _ in range(len(queues) + added)] if added else queues
        else:
            taken = max(0, min(-(part // size), len(queues) - 1))
            moving = [number for queue in queues[:taken] for number in queue]
            queues = queues[taken:]
        for number in moving:
            min(queues, key=len).append(number)
        self._queues[size] = queues


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
        runs = here[choose(waiting, here, workers[here], now)] if len(here) else here
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
