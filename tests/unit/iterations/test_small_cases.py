"""Plans of small cases beside the exact optimum, which a MILP finds; the bound; and the trap of sisters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from bftrainer.iterations.bounds import makespan_bound
from bftrainer.iterations.model import IterationJob, IterationTask, PlanRules, SharedDevices
from bftrainer.iterations.orders import ORDERS
from bftrainer.iterations.plan import begin, plan

DEVICES = 3


def case(seed: int) -> list[IterationJob]:
    """Jobs at time 0 whose tasks take whole seconds."""
    rng = np.random.default_rng(seed)
    return [
        IterationJob(
            arrival=0.0,
            tasks=tuple(IterationTask(float(s), 1.0) for s in rng.integers(1, 4, rng.integers(1, 4))),
            iterations=int(rng.integers(3, 6)),
            model_gb=0.01,
        )
        for _ in range(4)
    ]


def makespan(jobs: list[IterationJob], order: str, devices: int = DEVICES, **rules: float) -> float:
    """When the last job ends (s), if an order decides."""
    state = begin(jobs, SharedDevices(devices, 16.0), PlanRules(**{"gamma_s_per_gb": 0.0, **rules}))
    while np.isinf(state.table.jobs["ended"]).any():
        _, state = plan(state, ORDERS[order])
    return float(state.table.jobs["ended"].max())


def optimum(jobs: list[IterationJob], horizon: int) -> float:
    """The shortest makespan (s): x[task, t] says that a task starts at t. Devices are alike, moves free."""
    tasks = [
        (number, iteration, int(task.seconds))
        for number, job in enumerate(jobs)
        for iteration in range(job.iterations)
        for task in job.tasks
    ]
    columns = len(tasks) * horizon + 1
    once, busy = lil_matrix((len(tasks), columns)), lil_matrix((horizon, columns))
    for place, (_, _, seconds) in enumerate(tasks):
        once[place, place * horizon : (place + 1) * horizon - seconds + 1] = 1
        for start in range(horizon):
            busy[start : start + seconds, place * horizon + start] = 1
    pairs = [
        (a, b)
        for a, first in enumerate(tasks)
        for b, then in enumerate(tasks)
        if first[0] == then[0] and first[1] + 1 == then[1]
    ]
    after, last = lil_matrix((len(pairs), columns)), lil_matrix((len(tasks), columns))
    times = np.arange(horizon)
    for row, (a, b) in enumerate(pairs):
        after[row, b * horizon : (b + 1) * horizon] = times
        after[row, a * horizon : (a + 1) * horizon] = -times
    for place in range(len(tasks)):
        last[place, place * horizon : (place + 1) * horizon] = -times
        last[place, columns - 1] = 1
    seconds = np.array([task[2] for task in tasks])
    cost = np.zeros(columns)
    cost[-1] = 1
    most = np.ones(columns)
    most[-1] = horizon
    integral = np.ones(columns)
    integral[-1] = 0
    found = milp(
        cost,
        integrality=integral,
        bounds=Bounds(0, most),
        constraints=[
            LinearConstraint(once.tocsr(), 1, 1),
            LinearConstraint(busy.tocsr(), 0, DEVICES),
            LinearConstraint(after.tocsr(), seconds[[a for a, _ in pairs]], np.inf),
            LinearConstraint(last.tocsr(), seconds, np.inf),
        ],
        options={"time_limit": 60},
    )
    assert found.status == 0, found.message
    return float(found.fun)


def test_a_job_of_which_two_workers_share_a_device_keeps_them_there() -> None:
    """The trap: a move takes longer than to wait for the sister, in each iteration anew."""
    task = IterationTask(0.1, 1.0)
    jobs = [
        IterationJob(arrival=0, tasks=(task,), iterations=100, model_gb=1.0),
        IterationJob(arrival=0, tasks=(task, task), iterations=1000, model_gb=1.0),
    ]
    together = makespan(jobs, "las", 2, gamma_s_per_gb=0.8, apart=False)
    weighed = makespan(jobs, "las", 2, gamma_s_per_gb=0.8, apart=False, weigh=True)
    apart = makespan(jobs, "las", 2, gamma_s_per_gb=0.8)
    assert together > 190
    assert apart < 125
    assert weighed < 125


@pytest.mark.parametrize("seed", range(8))
def test_no_order_beats_the_bound(seed: int) -> None:
    jobs = case(seed)
    bound = makespan_bound(jobs, DEVICES)
    assert bound <= min(makespan(jobs, order) for order in ORDERS) + 1e-6
    longest = max(job.iterations * job.iteration_s for job in jobs)
    assert bound == pytest.approx(max(sum(job.work_s for job in jobs) / DEVICES, longest))


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_the_optimum_is_the_bound_in_whole_seconds(seed: int) -> None:
    jobs = case(seed)
    best = min(makespan(jobs, order) for order in ORDERS)
    exact = optimum(jobs, int(best) + 1)
    assert exact == pytest.approx(np.ceil(makespan_bound(jobs, DEVICES) - 1e-6))
    assert exact <= best + 1e-6
