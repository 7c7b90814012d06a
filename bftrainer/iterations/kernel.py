"""The loop that plans an interval task by task, compiled by Numba: a minute of 45 devices has 50,000 tasks.

At each moment the tasks that are ready are looked at in their order. A task goes to the device that its
worker used before if that is free; to another free one if it starts earlier there, with the move; and waits
otherwise. A device that is kept for a job starts no other task that would delay the job's next iteration.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bftrainer.iterations.model import Flags, Ints

F = TypeVar("F", bound=Callable[..., object])
WAITING, RUNNING, DONE, OVER = 0, 1, 2, 3
"""A worker's phase: its task waits, runs, or has ended before others of the iteration; or the job ended."""
BLOCK = 32
"""Ranks of which a block without a ready task is passed over at once."""


def _compiled(function: F) -> F:
    return cast(F, njit(function))


def _stored(function: F) -> F:
    """Compiles, and stores the result beside this file. Arguments must be of NumPy's types: a stored result
    names its types, and could not be read after a rename."""
    return cast(F, njit(cache=True)(function))


WORKER = np.dtype(
    [
        *(
            ("job", "i8"),
            ("seconds", "f8"),
            ("memory", "f8"),
            ("ready", "f8"),
            ("home", "i8"),
            ("phase", "i8"),
        ),
        *(("rank", "i8"), ("lost", "f8"), ("left", "i8")),
    ]
)
"""A worker: its job, its task's time and memory, when that was ready, its device (-1: none yet), its place in
the order of this plan, how long its tasks have waited for that device since the last move, and the device
which its model is leaving or, without a device, has left."""
JOB = np.dtype(
    [
        *(("first", "i8"), ("end", "i8"), ("left", "i8"), ("done", "i8"), ("missing", "i8")),
        *(("move", "f8"), ("model", "f8"), ("exchange", "f8"), ("ended", "f8"), ("late", "?")),
    ]
)
"""A job: its first worker and the one after its last, iterations left and done, tasks of this one that have
not ended, the times of a move and an exchange, the model's memory, when it ended (inf: not yet), and whether
its devices are kept for it."""
DEVICE = np.dtype(
    [
        *(("running", "i8"), ("free", "f8"), ("resident", "f8"), ("largest", "f8"), ("at_home", "i8")),
        *(("wait", "f8"), ("stamp", "i8"), ("idle", "i8"), ("place", "i8"), ("kept", "i8")),
    ]
)
"""A device: the worker that runs (-1: none) and until when; memory of models, and of the largest task; how
many tasks are ready here; what it owes to tasks before the one looked at, in the look `stamp`; a device that
is idle, and the place of this one among these; the job that it is kept for (-1: none)."""
TASK = np.dtype([("slot", "i8"), ("iteration", "i8"), ("device", "i8"), ("start", "f8"), ("moved", "?")])
"""A planned task."""
Records = NDArray[Any]


class Timetable(NamedTuple):
    """Jobs and devices at one moment, which `plan_interval` changes: arrays of WORKER, JOB and DEVICE."""

    workers: Records
    jobs: Records
    devices: Records


class ReadyTasks(NamedTuple):
    """Workers by rank, those whose task is ready, and how many of each block.

    `number` has those of looks, of idle devices, and of tasks planned.
    """

    order: Ints
    flag: Flags
    blocks: Ints
    number: Ints


@_compiled
def _mark(w: ReadyTasks, t: Timetable, slot: int, step: int) -> None:
    """Add (1) or take away (-1) a worker from those whose task is ready."""
    rank = t.workers[slot].rank
    w.flag[rank] = step > 0
    w.blocks[rank // BLOCK] += step
    if t.workers[slot].home >= 0:
        t.devices[t.workers[slot].home].at_home += step


@_compiled
def _begin(w: ReadyTasks, t: Timetable, job: int) -> None:
    """The tasks of a job's iteration become ready."""
    for slot in range(t.jobs[job].first, t.jobs[job].end):
        _mark(w, t, slot, 1)


@_compiled
def _rest(w: ReadyTasks, t: Timetable, device: int) -> None:
    """Add a device to those that are idle."""
    t.devices[w.number[1]].idle = device
    t.devices[device].place = w.number[1]
    w.number[1] += 1


@_compiled
def _finish(t: Timetable, device: int) -> int:
    """End the task of a device; return the job if this ended an iteration that others follow, or -1."""
    slot, time = t.devices[device].running, t.devices[device].free
    t.devices[device].running = -1
    t.workers[slot].phase = DONE
    job: int = t.workers[slot].job
    t.jobs[job].missing -= 1
    if t.jobs[job].missing > 0:
        return -1
    t.jobs[job].left -= 1
    t.jobs[job].done += 1
    begin, end = t.jobs[job].first, t.jobs[job].end
    if t.jobs[job].left == 0:
        t.jobs[job].ended = time
        for other in range(begin, end):
            t.workers[other].phase = OVER
            if t.workers[other].home >= 0:
                t.devices[t.workers[other].home].resident -= t.jobs[job].model
        return -1
    t.jobs[job].missing = end - begin
    for other in range(begin, end):
        t.workers[other].phase = WAITING
        t.workers[other].ready = time + t.jobs[job].exchange
    return job


@_compiled
def _again(t: Timetable, job: int, now: float) -> float:
    """Time at which a job's next iteration can begin, if its tasks wait for their devices only; inf: a worker
    has no device yet."""
    last = now
    for slot in range(t.jobs[job].first, t.jobs[job].end):
        worker, home = t.workers[slot], t.devices[t.workers[slot].home]
        if worker.home < 0:
            return np.inf
        if worker.phase == RUNNING:
            last = max(last, home.free)
        elif worker.phase == WAITING:
            last = max(last, max(home.free, now) + worker.seconds)
    return float(last + t.jobs[job].exchange)


@_compiled
def _is_kept(t: Timetable, slot: int, device: int, start: float) -> bool:
    """True if a device is kept for another job, and the worker's task would delay that job's next one. Jobs
    with such devices do not wait for each other: two could do so for ever."""
    job = t.devices[device].kept
    if job < 0 or t.jobs[t.workers[slot].job].late or t.jobs[job].left == 0:
        return False
    return bool(start + t.workers[slot].seconds > _again(t, job, start))


@_compiled
def _start(w: ReadyTasks, t: Timetable, r: Records, slot: int, device: int, start: float) -> None:
    """Plan a worker's task."""
    _mark(w, t, slot, -1)
    moved, job = t.workers[slot].home != device, t.workers[slot].job
    if moved:
        left = t.workers[slot].home
        if left >= 0 and t.devices[left].kept == job:
            t.devices[left].kept = -1
        if t.jobs[job].late and t.devices[device].kept < 0:
            t.devices[device].kept = job
        t.workers[slot].left = left
        t.devices[device].resident += t.jobs[job].model
        t.devices[device].largest = max(t.devices[device].largest, t.workers[slot].memory)
        t.workers[slot].home = device
        t.workers[slot].lost = 0.0
    else:
        t.workers[slot].lost += start - t.workers[slot].ready
    w.number[1] -= 1
    last, place = t.devices[w.number[1]].idle, t.devices[device].place
    t.devices[place].idle, t.devices[last].place = last, place
    t.workers[slot].phase = RUNNING
    t.devices[device].running = slot
    t.devices[device].free = start + t.workers[slot].seconds
    task = r[w.number[2]]
    task.slot, task.iteration, task.device = slot, t.jobs[job].done, device
    task.start, task.moved = start, moved
    w.number[2] += 1


@_compiled
def _elsewhere(w: ReadyTasks, t: Timetable, slot: int, start: float, apart: bool, capacity: float) -> int:
    """The idle device for a worker that moves, with the fewest tasks that are ready there; -1: none."""
    job, best = t.workers[slot].job, -1
    for number in range(w.number[1]):
        device = t.devices[number].idle
        largest = max(t.devices[device].largest, t.workers[slot].memory)
        if t.devices[device].resident + t.jobs[job].model + largest > capacity:
            continue
        if _is_kept(t, slot, device, start):
            continue
        if best >= 0 and (t.devices[device].at_home, device) >= (t.devices[best].at_home, best):
            continue
        free = True
        if apart:
            for other in range(t.jobs[job].first, t.jobs[job].end):
                place = t.workers[other].home
                if place < 0 and t.workers[other].phase == DONE:
                    place = t.workers[other].left  # this iteration's task ran there
                if place == device:
                    free = False
                    break
        if free:
            best = device
    return best


@_compiled
def _at_home(t: Timetable, slot: int, now: float, stamp: int) -> tuple[int, float, float]:
    """A worker's own device if its task can start there now, or -1; when it can, as far as that is known; and
    what the device owes to tasks before it."""
    home = t.workers[slot].home
    if home < 0:
        return -1, np.inf, 0.0
    owed = t.devices[home].wait if t.devices[home].stamp == stamp else 0.0
    if t.devices[home].running >= 0:
        return -1, max(t.devices[home].free, now) + owed, owed
    if _is_kept(t, slot, home, now):
        return -1, np.inf, owed
    return home, now, owed


@_compiled
def _look(
    w: ReadyTasks,
    t: Timetable,
    r: Records,
    heap: list[tuple[float, int]],
    now: float,
    until: float,
    apart: bool,
    weigh: bool,
    capacity: float,
    reserve: bool,
) -> None:
    """Start what can start now, or with `reserve` what must be moved first."""
    w.number[0] += 1
    stamp = w.number[0]
    for block in range(len(w.blocks)):
        if w.blocks[block] == 0:
            continue
        for rank in range(block * BLOCK, min((block + 1) * BLOCK, len(w.order))):
            if not w.flag[rank]:
                continue
            slot = w.order[rank]
            home, start = t.workers[slot].home, now
            device, at_home, owed = _at_home(t, slot, now, stamp)
            if device < 0:
                move = t.jobs[t.workers[slot].job].move
                start = max(now, t.workers[slot].ready + move)
                pays = weigh and t.workers[slot].lost + at_home - t.workers[slot].ready > move
                if (start < at_home or pays) and start < until and (reserve or start <= now):
                    device = _elsewhere(w, t, slot, start, apart, capacity)
            if device >= 0:
                _start(w, t, r, slot, device, start)
                heapq.heappush(heap, (t.devices[device].free, device))
                if 0 <= home != device:  # its model is on both until the move is over
                    heapq.heappush(heap, (start, len(t.devices) + len(t.jobs) + slot))
                if w.number[1] == 0:
                    return
            elif home >= 0:
                t.devices[home].wait = owed + t.workers[slot].seconds
                t.devices[home].stamp = stamp


@_compiled
def _queue(w: ReadyTasks, t: Timetable, now: float) -> list[tuple[float, int]]:
    """The events to come, a heap: a device's task ends, or (above all devices) a job becomes ready, or (above
    all jobs) a worker's model has left a device.

    Marks the tasks that are ready now, and the devices that are idle.
    """
    devices = len(t.devices)
    heap = [(np.inf, 0)]
    for device in range(devices):
        if t.devices[device].running >= 0:
            heapq.heappush(heap, (t.devices[device].free, device))
        else:
            _rest(w, t, device)
    for rank in range(len(w.order)):
        slot = w.order[rank]
        if t.workers[slot].phase == WAITING:
            if t.workers[slot].ready <= now:
                _mark(w, t, slot, 1)
            elif slot == t.jobs[t.workers[slot].job].first:
                heapq.heappush(heap, (t.workers[slot].ready, devices + t.workers[slot].job))
    return heap


@_stored
def plan_interval(
    workers: Records,
    jobs: Records,
    devices: Records,
    order: Ints,
    records: Records,
    now: float,
    until: float,
    apart: bool,
    weigh: bool,
    capacity: float,
) -> int:
    """Plan the tasks that start from `now` to before `until`; return how many of `records` are these.

    Arrays of WORKER, JOB and DEVICE become those of `until`; `order` has the workers of jobs that have come.
    """
    t = Timetable(workers, jobs, devices)
    blocks = np.zeros(len(order) // BLOCK + 1, np.int64)
    w = ReadyTasks(order, np.zeros(len(order), np.bool_), blocks, np.zeros(3, np.int64))
    heap = _queue(w, t, now)
    while now < until:
        while heap[0][0] <= now:
            _, code = heapq.heappop(heap)
            if code >= len(devices) + len(jobs):
                slot = code - len(devices) - len(jobs)
                t.devices[workers[slot].left].resident -= t.jobs[workers[slot].job].model
                continue
            if code >= len(devices):
                _begin(w, t, code - len(devices))
                continue
            _rest(w, t, code)
            job = _finish(t, code)
            if job >= 0 and t.jobs[job].exchange > 0:
                heapq.heappush(heap, (t.devices[code].free + t.jobs[job].exchange, len(devices) + job))
            elif job >= 0:
                _begin(w, t, job)
        for reserve in (False, True):
            if w.number[1] > 0:
                _look(w, t, records, heap, now, until, apart, weigh, capacity, reserve)
        now = heap[0][0]
    return int(w.number[2])
