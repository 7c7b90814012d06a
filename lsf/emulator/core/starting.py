"""Dispatching: who starts, goes on or makes room now."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable

from lsf.emulator.core import ending, jobs
from lsf.emulator.core.deciding import NEVER, Decisions, Running, Waiting, decide
from lsf.emulator.core.effects import Signal, Start
from lsf.emulator.core.jobs import Dispatched, Job
from lsf.emulator.core.model import OnPreempt, Queue, State
from lsf.emulator.core.placing import Placement
from lsf.emulator.core.state import ClusterState
from lsf.emulator.core.timers import What

MOST_TURNS = 100
"""Times that one dispatch may suspend jobs and give their slots away."""


def dispatch(state: ClusterState) -> None:
    """Start, continue and preempt jobs until nothing changes any more."""
    for _ in range(MOST_TURNS):
        state.changed = False
        made = decided(state)
        state.reservation, state.blocked = made.reservation, made.blocked
        state.version += 1
        for id_, placement in made.starts:
            _start(state, state.jobs[id_], placement)
        for victim in made.victims:
            _preempt(state, state.jobs[victim])
        if not state.changed:
            return


def decided(state: ClusterState) -> Decisions:
    """Return the decisions for now."""
    held = [job for job in state.started() if job.holds]
    wanted = [_waiting(state, job) for job in _in_order(state)]
    late = [job.id for job in wanted if 0 < state.site.closes_at < state.now + job.limit_s and not job.holds]
    made = decide(
        state.hosts,
        state.free,
        state.open,
        [job for job in wanted if job.id not in late],
        [_running(state, job) for job in held],
        state.now,
        _caps(state, held),
        reserve=state.site.reserve,
        gpus=state.gpus,
    )
    made.blocked.update(dict.fromkeys(late, "time until the machine closes"))
    return made


def _in_order(state: ClusterState) -> list[Job]:
    waiting = [
        job for job in state.active.values() if job.state in (State.PEND, State.SSUSP) and not job.told
    ]
    queues = state.queues
    return sorted(waiting, key=lambda job: (-queues[job.request.queue].priority, job.order))


def _waiting(state: ClusterState, job: Job) -> Waiting:
    queue = state.queues[job.request.queue]
    return Waiting(
        id=job.id,
        demand=job.request.demand,
        limit_s=job.left_s(state.now) if job.limit_s else NEVER,
        preempts=frozenset(queue.preempts),
        backfill=queue.backfill,
        caps=() if job.holds else _limits(queue, job.request.user),
        fixed=job.placement if job.state is State.SSUSP else None,
        holds=job.holds,
    )


def _running(state: ClusterState, job: Job) -> Running:
    assert job.placement is not None and job.start is not None  # noqa: S101  it has slots
    queue, end = state.queues[job.request.queue], job.expected_end(state.now)
    return Running(
        id=job.id,
        queue=queue.name,
        placement=job.placement,
        end=NEVER if end is None else end,
        started=job.start,
        safe_until=job.start + queue.guaranteed_s,
        priority=queue.priority,
        ending=job.told or job.gone_code is not None,
        gpus=job.request.demand.gpus,
        movable=job.request.rerunnable and queue.on_preempt is not OnPreempt.SUSPEND,
    )


def _limits(queue: Queue, user: str) -> tuple[str, ...]:
    names = []
    if queue.most_slots:
        names.append(f"queue {queue.name}")
    if queue.most_slots_per_user:
        names.append(f"user {user} in queue {queue.name}")
    return tuple(names)


def _caps(state: ClusterState, held: Iterable[Job]) -> dict[str, int]:
    """The slots that each limit leaves."""
    used: dict[str, int] = {}
    for job in held:
        for name in _limits(state.queues[job.request.queue], job.request.user):
            used[name] = used.get(name, 0) + job.request.demand.slots
    caps = {}
    for job in state.active.values():
        queue = state.queues[job.request.queue]
        mosts = [most for most in (queue.most_slots, queue.most_slots_per_user) if most]
        for name, most in zip(_limits(queue, job.request.user), mosts, strict=True):
            caps[name] = most - used.get(name, 0)
    return caps


def _start(state: ClusterState, job: Job, placement: Placement) -> None:
    """Dispatch a job, or continue a suspended one."""
    again = job.state is State.SSUSP
    if not job.holds:
        state.take(job, placement)
    job.change(State.RUN, state.now)
    if again:
        if job.request.duration_s is None:
            state.effects.append(Signal(job.id, job.run, signal.SIGCONT))
    else:
        job.start, job.ran_s = state.now, 0.0
        if job.request.demand.launch and len(state.hosts.launch):
            place = state.hosts.launch[state.launches % len(state.hosts.launch)]
            job.launch_host = state.hosts.names[int(place)]
            state.launches += 1
        job.said.append((state.now, Dispatched(placement, job.launch_host)))
        if job.request.duration_s is None:
            state.effects.append(Start(job.id, job.run))
    _set_timers(state, job)
    state.version += 1


def _set_timers(state: ClusterState, job: Job) -> None:
    """The timers of a job that runs from now on."""
    ran = job.ran(state.now)
    if job.request.duration_s is not None:
        state.timers.set(state.now + max(0.0, job.request.duration_s - ran), What.OVER, job.id, job.run)
    if job.limit_s:
        left = max(0.0, job.limit_s - ran)
        state.timers.set(state.now + left, What.LIMIT, job.id, job.run)
        if job.request.warning is not None:
            early = max(0.0, left - job.request.warning[1])
            state.timers.set(state.now + early, What.WARN, job.id, job.run)
    guaranteed = state.queues[job.request.queue].guaranteed_s
    if guaranteed and job.start is not None and job.start + guaranteed > state.now:
        state.timers.set(job.start + guaranteed, What.DISPATCH)


def _preempt(state: ClusterState, job: Job) -> None:
    """Have a job make room."""
    how = state.queues[job.request.queue].on_preempt
    if how is OnPreempt.SUSPEND:
        ending.suspend(state, job, State.SSUSP)
        state.release(job)
    else:
        job.requeue = how is OnPreempt.REQUEUE and job.request.rerunnable
        ending.terminate(state, job, jobs.PREEMPT)


def next_cycle(state: ClusterState) -> float:
    """Return when jobs are dispatched next, where that happens at intervals."""
    every = state.site.cycle_s
    return (math.floor(state.now / every) + 1) * every
