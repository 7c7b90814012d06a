"""The emulated cluster at one moment: hosts, jobs, timers, and the requests on real jobs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lsf.emulator.core.deciding import Reservation
from lsf.emulator.core.effects import Effect
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Closed, Site
from lsf.emulator.core.placing import Hosts, Placement
from lsf.emulator.core.timers import Timers


class ClusterState:
    """The state of a cluster. Its modules change it; everybody else reads it.

    Attributes:
        jobs: id -> job; finished ones are among them for CLEAN_PERIOD.
        active: Those that have not ended.
        free: Slots of each host that no job has.
        gpus: GPUs of each host that no job has.
        open: Whether a host takes jobs.
        closed: Why a host takes none, by its place.
        effects: What is to be done to real jobs; whoever does it empties the list.
        reservation: The slots that are kept for the first job that has to wait.
        blocked: Jobs that a limit holds back -> its name.
        version: Grows with every change.
        changed: Whether jobs have to be dispatched again.
        finished: Every job that has ended, if somebody wants to know; else None.
        refused: How many jobs of the main load were.
    """

    def __init__(self, site: Site, now: float) -> None:
        """All hosts are free."""
        self.site = site
        self.hosts = Hosts(site.hosts)
        self.queues = {queue.name: queue for queue in site.queues}
        self.now = now
        self.jobs: dict[int, Job] = {}
        self.active: dict[int, Job] = {}
        self.free = np.where(self.hosts.compute, self.hosts.slots, 0)
        self.gpus = self.hosts.gpus.copy()
        self.open = self.hosts.compute.copy()
        self.closed: dict[int, Closed] = {}
        self.effects: list[Effect] = []
        self.reservation: Reservation | None = None
        self.blocked: dict[int, str] = {}
        self.version = 0
        self.changed = False
        self.finished: list[Job] | None = None
        self.timers = Timers()
        self.launches = 0
        self.refused = 0

    def touch(self) -> None:
        """Note that something has changed that may let jobs start."""
        self.version += 1
        self.changed = True

    def started(self) -> Iterable[Job]:
        """The jobs that have been dispatched and have not ended."""
        return (job for job in self.active.values() if job.started)

    def uses(self, job: Job, at: int) -> bool:
        """Return whether a job has slots of the host at this place, or its script there."""
        found = job.placement
        return found is not None and (at in found.hosts or self.hosts.names[at] == job.launch_host)

    def take(self, job: Job, placement: Placement) -> None:
        """Give a job its slots, and of each host the first GPUs that no job has."""
        wanted = job.request.demand.gpus
        if wanted:
            job.devices = {at: self._unused(at)[:wanted] for at in placement.hosts.tolist()}
        self.free[placement.hosts] -= placement.taken
        self.gpus[placement.hosts] -= wanted
        job.placement, job.holds = placement, True

    def release(self, job: Job) -> None:
        """Free the slots and GPUs that a job holds."""
        if job.holds and job.placement is not None:
            self.free[job.placement.hosts] += job.placement.taken
            self.gpus[job.placement.hosts] += job.request.demand.gpus
        job.holds, job.devices = False, {}

    def _unused(self, at: int) -> tuple[int, ...]:
        used = {number for job in self.started() for number in job.devices.get(at, ())}
        return tuple(number for number in range(self.hosts.all[at].gpus) if number not in used)
