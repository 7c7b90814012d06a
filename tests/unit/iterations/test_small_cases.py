"""Plans of small cases beside the exact optimum, which a MILP finds; the bound; and the trap of sisters."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer.iterations.bounds import makespan_bound
from bftrainer.iterations.model import IterationJob, IterationTask, PlanRules, SharedDevices
from bftrainer.iterations.orders import ORDERS
from bftrainer.iterations.plan import begin, plan
from tests.support.small_cases import DEVICES, case, optimum, searched


def makespan(jobs: list[IterationJob], order: str, devices: int = DEVICES, **rules: float) -> float:
    """When the last job ends (s), if an order decides."""
    state = begin(jobs, SharedDevices(devices, 16.0), PlanRules(**{"gamma_s_per_gb": 0.0, **rules}))
    while np.isinf(state.table.jobs["ended"]).any():
        _, state = plan(state, ORDERS[order])
    return float(state.table.jobs["ended"].max())


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


@pytest.mark.parametrize("seed", [0, 1, 5, 7])
def test_a_search_finds_the_optimum(seed: int) -> None:
    """It is the bound in whole seconds."""
    jobs = case(seed)
    found = searched(jobs)
    assert found == optimum(jobs, int(found) + 1)
    assert found == pytest.approx(np.ceil(makespan_bound(jobs, DEVICES) - 1e-6))
    assert found < makespan(jobs, "longest", apart=False)
