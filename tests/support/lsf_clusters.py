"""Small emulated clusters, and the invariants that hold for each at every moment."""

from __future__ import annotations

import numpy as np

from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.model import Demand, Host, OnPreempt, Queue, Request, Site, State

BATCH = Queue(name="batch", priority=50, preempts=("killable",))
KILLABLE = Queue(name="killable", priority=10, on_preempt=OnPreempt.REQUEUE)


def hosts(count: int, slots: int = 42, launch: int = 0) -> tuple[Host, ...]:
    launches = (Host(name=f"batch{n}", launch=True) for n in range(1, launch + 1))
    return (*launches, *(Host(name=f"h{n}", slots=slots) for n in range(1, count + 1)))


def site(
    count: int = 4, *, slots: int = 42, queues: tuple[Queue, ...] = (BATCH, KILLABLE), **more: object
) -> Site:
    return Site(hosts=hosts(count, slots), queues=queues, default_queue=queues[0].name, **more)  # type: ignore[arg-type]


def whole(
    count: int, run_s: float, limit_s: float, *, queue: str = "batch", user: str = "u", **more: object
) -> Request:
    """A simulated job on whole hosts."""
    demand = Demand(slots=42 * count, per_host=42, whole=True)
    return Request(demand=demand, user=user, queue=queue, duration_s=run_s, limit_s=limit_s, **more)  # type: ignore[arg-type]


def sound(cluster: Cluster) -> None:
    """No host has more jobs than slots, no GPU two jobs, and what is free is what no job holds."""
    state = cluster.state
    used, gpus = np.zeros_like(state.free), [list[int]() for _ in state.hosts.all]
    for job in state.active.values():
        assert not job.holds or job.started
        assert job.holds or job.state is not State.RUN
        if job.holds:
            assert job.placement is not None
            assert job.placement.slots.sum() == job.request.demand.slots
            assert (job.placement.slots <= job.placement.taken).all()
            used[job.placement.hosts] += job.placement.taken
            assert all(len(own) == job.request.demand.gpus for own in job.devices.values())
            for at, own in job.devices.items():
                gpus[at] += own
    for host, numbers, free in zip(state.hosts.all, gpus, state.gpus.tolist(), strict=True):
        assert len(set(numbers)) == len(numbers) == host.gpus - free
        assert set(numbers) <= set(range(host.gpus))
    capacity = np.where(state.hosts.compute, state.hosts.slots, 0)
    assert (used <= capacity).all()
    assert (state.free == capacity - used).all()
