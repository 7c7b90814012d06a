"""Small cases of jobs that share devices by iteration, and their exact optimum, which a MILP finds."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from bftrainer.iterations.model import IterationJob, IterationTask, PlanRules, SharedDevices
from bftrainer.iterations.orders import ORDERS
from bftrainer.replay.iterations.shared import share

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


def searched(jobs: list[IterationJob]) -> float:
    """The makespan of plans that are searched for, every two seconds (s)."""
    rules = PlanRules(gamma_s_per_gb=0.0, apart=False, search=True, interval_s=2.0)
    return float(share(jobs, SharedDevices(DEVICES, 16.0), rules, ORDERS["longest"]).ended.max())


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
