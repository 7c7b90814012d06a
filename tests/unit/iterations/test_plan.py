"""Plans of iterations on shared devices: what holds for each of them, on random jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bftrainer.iterations.model import IterationJob, IterationTask, PlannedTasks, PlanRules, SharedDevices
from bftrainer.iterations.orders import ORDERS
from bftrainer.iterations.plan import SharedState, begin, plan

DEVICES = SharedDevices(4, 10.0)
JOBS = st.lists(
    st.builds(
        IterationJob,
        arrival=st.floats(0, 8),
        tasks=st.lists(
            st.builds(IterationTask, st.floats(0.01, 0.5), st.floats(0.1, 8)), min_size=1, max_size=4
        ).map(tuple),
        iterations=st.integers(1, 30),
        model_gb=st.floats(0.01, 1.0),
        exchange_s=st.sampled_from([0.0, 0.1]),
    ),
    min_size=1,
    max_size=6,
)
RULES = st.builds(
    PlanRules,
    gamma_s_per_gb=st.floats(0, 2),
    apart=st.booleans(),
    weigh=st.booleans(),
    keep=st.booleans(),
    interval_s=st.sampled_from([1.0, 3.0]),
)


def intervals(
    jobs: list[IterationJob], rules: PlanRules, order: str, devices: SharedDevices = DEVICES
) -> Iterator[tuple[PlannedTasks, SharedState]]:
    """The tasks of each interval and the state after it, to the one in which the last job ends."""
    state, number = begin(jobs, devices, rules), 0
    while np.isinf(state.table.jobs["ended"]).any():
        tasks, state = plan(state, ORDERS[order])
        yield tasks, state
        number += 1
        assert number < 2000, "it does not end"


def planned(
    jobs: list[IterationJob], rules: PlanRules, order: str, devices: SharedDevices = DEVICES
) -> tuple[PlannedTasks, SharedState]:
    """All tasks, and the state after them."""
    parts, states = zip(*intervals(jobs, rules, order, devices), strict=True)
    fields = ("slot", "iteration", "device", "start", "moved")
    return PlannedTasks(*(np.concatenate([getattr(p, field) for p in parts]) for field in fields)), states[-1]


def waiting_for_each_other() -> list[IterationJob]:
    """Jobs that each hold the memory of a device that another one lacks, where all begin at once."""
    return [
        IterationJob(
            arrival=0.0,
            tasks=tuple(IterationTask(s, gb) for s, gb in tasks),
            iterations=1,
            model_gb=1.0,
            exchange_s=0.0,
        )
        for tasks in (
            ((0.5, 8.0), (0.5, 8.0), (0.25, 1.0)),
            ((0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (0.5, 1.0)),
            ((0.5, 1.0), (0.5, 2.0)),
            ((0.5, 1.0), (0.5, 7.0)),
            ((0.5, 1.0), (0.5, 2.0), (0.5, 8.0)),
        )
    ]


TOGETHER = PlanRules(gamma_s_per_gb=0.0, apart=False, weigh=False)


@given(JOBS, RULES, st.sampled_from(sorted(ORDERS)))
@example(waiting_for_each_other(), TOGETHER, "product")
def test_a_device_runs_one_task_at_a_time(jobs: list[IterationJob], rules: PlanRules, order: str) -> None:
    tasks, state = planned(jobs, rules, order)
    end = tasks.start + state.table.workers["seconds"][tasks.slot]
    for device in range(DEVICES.count):
        own = np.flatnonzero(tasks.device == device)
        own = own[np.argsort(tasks.start[own], kind="stable")]
        assert (tasks.start[own][1:] >= end[own][:-1] - 1e-9).all()


@given(JOBS, RULES, st.sampled_from(sorted(ORDERS)))
@example(waiting_for_each_other(), TOGETHER, "product")
def test_iterations_follow_each_other(jobs: list[IterationJob], rules: PlanRules, order: str) -> None:
    """Each once, after all tasks of the one before and the exchange; later by the move on another device."""
    tasks, state = planned(jobs, rules, order)
    workers = state.table.workers
    place, started, ready = {}, {}, defaultdict(float)
    quiet = set(range(int(state.now / rules.interval_s))) - set(tasks.start // rules.interval_s)
    for slot, iteration, device, start, moved in zip(
        *(getattr(tasks, name).tolist() for name in ("slot", "iteration", "device", "start", "moved")),
        strict=True,
    ):
        assert (slot, iteration) not in place
        place[slot, iteration] = device
        job = int(workers["job"][slot])
        if not moved or place.get((slot, iteration - 1)) != device:
            assert moved == (place.get((slot, iteration - 1)) != device)
        else:  # it had let go of its device: nothing ran meanwhile
            last = started[slot, iteration - 1] // rules.interval_s
            assert any(last < number < start // rules.interval_s for number in quiet)
        started[slot, iteration] = start
        end = start + float(workers["seconds"][slot])
        ready[job, iteration + 1] = max(ready[job, iteration + 1], end + jobs[job].exchange_s)
        before = ready[job, iteration] if iteration else jobs[job].arrival
        assert start >= before + moved * rules.gamma_s_per_gb * jobs[job].model_gb - 1e-9
    assert len(place) == sum(len(job.tasks) * job.iterations for job in jobs)
    for number, job in enumerate(jobs):
        ended = state.table.jobs["ended"][number]
        assert ended == pytest.approx(ready[number, job.iterations] - job.exchange_s)


def moving() -> list[IterationJob]:
    """Jobs of which one moves a worker to a device, while another worker comes to where it was."""
    rows = [
        (0.0, (0.49609375, 0.3671875, 0.3359375, 0.21484375), 10, 0.0625, 0.0),
        (1.0, (0.203125, 0.3046875, 0.453125, 0.078125), 6, 0.875, 0.1),
        (1.0, (0.015625, 0.25, 0.34375, 0.5), 4, 0.5, 0.0),
        (0.0, (0.4453125, 0.5, 0.4375, 0.0703125), 16, 0.125, 0.0),
        (0.0, (0.09375, 0.5, 0.5), 11, 0.125, 0.1),
        (1.0, (0.25, 0.3125, 0.5), 3, 0.5, 0.0),
    ]
    return [
        IterationJob(
            arrival=arrival,
            tasks=tuple(IterationTask(s, 6.0 if s == 0.015625 else 1.0) for s in seconds),
            iterations=iterations,
            model_gb=model_gb,
            exchange_s=exchange_s,
        )
        for arrival, seconds, iterations, model_gb, exchange_s in rows
    ]


@given(JOBS, RULES, st.sampled_from(sorted(ORDERS)))
@example(moving(), PlanRules(gamma_s_per_gb=1.53125, apart=False, weigh=True, interval_s=3.0), "las")
def test_memory_is_never_exceeded(jobs: list[IterationJob], rules: PlanRules, order: str) -> None:
    """The models of all workers on a device, and what the running task needs, fit at each start."""
    at: dict[int, int] = {}
    quiet = False
    for tasks, state in intervals(jobs, rules, order):
        workers, ended = state.table.workers, state.table.jobs["ended"]
        if quiet:  # workers may have let go of their devices
            gone = {*np.flatnonzero(workers["home"] < 0), *tasks.slot[tasks.moved]}
            at = {slot: device for slot, device in at.items() if slot not in gone}
        quiet = not len(tasks.slot)
        for place in np.argsort(tasks.start, kind="stable"):
            slot, device, start = int(tasks.slot[place]), int(tasks.device[place]), tasks.start[place]
            at[slot] = device
            there = [w for w, d in at.items() if d == device and ended[workers["job"][w]] > start]
            models = sum(jobs[int(workers["job"][w])].model_gb for w in there)
            assert models + workers["memory"][slot] <= DEVICES.memory_gb + 1e-9


@given(JOBS, st.sampled_from(sorted(ORDERS)))
def test_workers_of_a_job_stay_apart(jobs: list[IterationJob], order: str) -> None:
    tasks, state = planned(jobs, PlanRules(interval_s=3.0), order)
    used: dict[tuple[int, int], set[int]] = defaultdict(set)
    owner = state.table.workers["job"]
    for slot, iteration, device in zip(tasks.slot, tasks.iteration, tasks.device, strict=True):
        assert device not in used[owner[slot], iteration]
        used[owner[slot], iteration].add(device)


def test_a_plan_changes_nothing_that_it_is_given() -> None:
    jobs = [IterationJob(arrival=0, tasks=(IterationTask(0.1, 1.0),), iterations=900, model_gb=0.1)]
    state = begin(jobs, DEVICES, PlanRules())
    first, second = plan(state, ORDERS["product"]), plan(state, ORDERS["product"])
    assert (first[0].start == second[0].start).all()
    assert state.table.jobs["left"][0] == 900
    assert first[1].table.jobs["left"][0] < 900


def test_a_device_that_is_kept_starts_no_task_that_delays_the_job() -> None:
    """The last job's own tasks take 0.1 and 0.2 s: beside them short tasks have room, long ones have not."""
    last = IterationJob(
        arrival=0.0,
        tasks=(IterationTask(0.1, 1.0), IterationTask(0.2, 1.0)),
        iterations=100,
        model_gb=0.01,
    )
    others = [
        IterationJob(arrival=0.0, tasks=(IterationTask(s, 1.0),), iterations=n, model_gb=0.01)
        for s, n in ((0.05, 100), (0.5, 5))
    ]
    ends = {}
    for keep in (False, True):
        rules = PlanRules(gamma_s_per_gb=0.0, keep=keep, interval_s=5.0)
        _, state = planned([last, *others], rules, "longest", SharedDevices(2, 10.0))
        ends[keep] = state.table.jobs["ended"]
    assert ends[True][0] == pytest.approx(20.0) and ends[False][0] > 21.0
    assert ends[True][1] < 15.0, "it trains beside"


def test_a_job_with_short_tasks_does_not_wait_for_those_with_long_ones() -> None:
    """Products are relative to the job's own largest; else it would run when the other has ended."""
    jobs = [
        IterationJob(arrival=0.0, tasks=(IterationTask(s, 1.0),), iterations=20, model_gb=0.01)
        for s in (0.05, 0.5)
    ]
    rules = PlanRules(gamma_s_per_gb=0.0, interval_s=5.0)
    short, long = (
        planned(jobs, rules, order, SharedDevices(1, 10.0))[1].table.jobs["ended"][0]
        for order in ("product", "size")
    )
    assert short == pytest.approx(1.0)
    assert long > 10.0
