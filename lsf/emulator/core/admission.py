"""Refuses jobs as LSF does, and checks a cluster's site."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import WAITING, Queue, Request, Site, SubmitError
from lsf.emulator.core.placing import Hosts, place

MOST_ASKED_HOSTS = 512
"""LSB_MAX_ASKED_HOSTS_NUMBER: hosts that -m takes, at most."""


def check(site: Site) -> None:
    """Check that a site is possible.

    Raises:
        ValueError: names occur twice or are not known, or a queue preempts one that comes before it.
    """
    names = [host.name for host in site.hosts]
    if len(set(names)) < len(names):
        raise ValueError("two hosts have the same name")
    queues = {queue.name: queue for queue in site.queues}
    if len(queues) < len(site.queues) or site.default_queue not in queues:
        raise ValueError(f"queues {[queue.name for queue in site.queues]}, default {site.default_queue!r}")
    for queue in site.queues:
        for name in queue.preempts:
            if name not in queues or queues[name].priority >= queue.priority:
                raise ValueError(f"queue {queue.name} cannot preempt {name}: it needs a higher priority")


def admit(site: Site, hosts: Hosts, request: Request, active: Iterable[Job]) -> Queue:
    """The queue of a job that is taken.

    Raises:
        SubmitError: it is refused.
    """
    queue = next((queue for queue in site.queues if queue.name == request.queue), None)
    demand = request.demand
    if queue is None:
        raise SubmitError("No such queue")
    if not queue.open:
        raise SubmitError("Queue has been closed")
    if request.exclusive and not queue.exclusive:
        raise SubmitError("Queue does not accept EXCLUSIVE jobs")
    if demand.only is not None and (
        len(demand.only) > MOST_ASKED_HOSTS or not demand.only <= hosts.index.keys()
    ):
        raise SubmitError("Bad host name, host group name or cluster name")
    if queue.run_limit_s and request.limit_s > queue.run_limit_s:
        raise SubmitError("RUNLIMIT: Cannot exceed queue's hard limit(s)")
    if place(hosts, np.where(hosts.compute, hosts.slots, 0), demand) is None:
        raise SubmitError("Too many processors requested")
    if queue.most_hosts and demand.per_host and -(-demand.slots // demand.per_host) > queue.most_hosts:
        raise SubmitError("Too many processors requested")
    mine = sum(
        job.state in WAITING and job.request.user == request.user and job.request.queue == queue.name
        for job in active
    )
    if queue.most_pending_per_user and mine >= queue.most_pending_per_user:
        raise SubmitError("User has reached the pending job limit of the queue")
    return queue
