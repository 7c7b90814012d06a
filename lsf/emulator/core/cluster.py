"""The emulated cluster: jobs are submitted, started, suspended, ended and requeued as time goes on.

It has no clock and starts no process: every call says the time, and what is to be done to real jobs is left
in `state.effects`. Simulated jobs end by themselves.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from lsf.emulator.core import admission, ending, jobs, starting
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import WAITING, Closed, Request, Site, State, SubmitError
from lsf.emulator.core.state import ClusterState
from lsf.emulator.core.timers import Timer, What

SOON_S = 1e-6
"""Seconds that count as in time, as sums of times are not exact."""
Coming = tuple[float, Request]
"""A job of the main load and when it is submitted."""


class Cluster:
    """A running cluster.

    Attributes:
        state: All there is to see of it.
    """

    def __init__(self, site: Site, now: float = 0.0) -> None:
        """All hosts are free.

        Raises:
            ValueError: the site cannot be.
        """
        admission.check(site)
        self.state = ClusterState(site, now)
        self._next = site.first_id
        self._coming: Iterator[Coming] = iter(())
        self._due: Coming | None = None
        self._dispatch_at = 0.0

    # Time

    def feed(self, coming: Iterable[Coming]) -> None:
        """Submit jobs at their times, which grow, in place of those that are still to come."""
        self._coming = iter(coming)
        self._expect()

    def next_time(self) -> float | None:
        """Return when something happens next by itself; None: never."""
        return self.state.timers.next_time()

    def advance(self, now: float) -> None:
        """Let everything happen that is due by now. Time never goes back."""
        state = self.state
        while (timer := state.timers.due(now)) is not None:
            state.now = max(state.now, timer.time)
            self._happen(timer)
            upcoming = state.timers.next_time()
            if upcoming is None or upcoming > state.now:
                self._settle()
        state.now = max(state.now, now)

    def _settle(self) -> None:
        """Dispatch where something has changed: at once, or with the next cycle."""
        state = self.state
        if not state.changed:
            return
        if state.site.cycle_s <= 0:
            starting.dispatch(state)
        elif self._dispatch_at <= state.now:
            self._dispatch_at = starting.next_cycle(state)
            state.timers.set(self._dispatch_at, What.DISPATCH)

    def _happen(self, timer: Timer) -> None:
        state = self.state
        if timer.what is What.SUBMIT:
            if self._due is not None:
                try:
                    self._take(self._due[1])
                except SubmitError:
                    state.refused += 1
                self._expect()
        elif timer.what is What.DISPATCH:
            starting.dispatch(state)
        elif timer.what is What.CLEAN:
            state.jobs.pop(timer.job, None)
        elif (job := state.active.get(timer.job)) is not None and job.run == timer.run and job.started:
            self._happen_to(job, timer.what)

    def _happen_to(self, job: Job, what: What) -> None:
        state, ran = self.state, job.ran(self.state.now) + SOON_S
        if what is What.REPORT:
            ending.finish(state, job, job.gone_code or 0)
        elif job.gone_code is not None:
            return
        elif what is What.STEP:
            ending.step(state, job)
        elif job.state is not State.RUN:
            return  # its timers are set again when it goes on
        elif what is What.OVER and job.request.duration_s is not None:
            if ran >= job.request.duration_s:
                ending.gone(state, job, 0)
        elif what is What.LIMIT:
            if ran >= job.limit_s and not job.told:
                ending.reached_limit(state, job)
        elif what is What.WARN and job.request.warning is not None:
            number, before = job.request.warning
            if ran >= job.limit_s - before and not job.told:
                ending.send(state, job, number)

    def _expect(self) -> None:
        self._due = next(self._coming, None)
        if self._due is not None:
            self.state.timers.set(max(self.state.now, self._due[0]), What.SUBMIT)

    # What users and administrators do

    def submit(self, request: Request, now: float) -> Job:
        """Take a job.

        Raises:
            SubmitError: LSF refuses it.
        """
        self.advance(now)
        job = self._take(request)
        self._settle()
        return job

    def _take(self, request: Request) -> Job:
        state = self.state
        queue = admission.admit(state.site, state.hosts, request, state.active.values())
        job = Job(
            id=self._next,
            request=request,
            submitted=state.now,
            limit_s=request.limit_s or queue.run_limit_s,
            state=State.PSUSP if request.held else State.PEND,
            order=self._next,
            since=state.now,
        )
        self._next += 1
        state.jobs[job.id] = state.active[job.id] = job
        state.touch()
        return job

    def kill(self, job: Job, now: float, *, admin: bool = False) -> None:
        """Kill a job as bkill does without a signal: it is not started again."""
        self.advance(now)
        job.requeue = False
        ending.terminate(self.state, job, jobs.ADMIN if admin else jobs.OWNER)
        self._settle()

    def signal(self, job: Job, number: int, now: float) -> None:
        """Signal a started job as bkill -s does; a waiting one ends at a signal that would end it."""
        self.advance(now)
        if job.state in WAITING:
            if number in ending.DEADLY:
                job.why = jobs.OWNER
                ending.finish(self.state, job, 128 + number)
        elif number == signal.SIGKILL:
            ending.terminate(self.state, job, jobs.OWNER, hard=True)
        elif job.started:
            ending.send(self.state, job, number)
        self._settle()

    def stop(self, job: Job, now: float) -> None:
        """Suspend a job as bstop does."""
        self.advance(now)
        if job.state is State.PEND:
            job.change(State.PSUSP, self.state.now)
            self.state.touch()
        elif job.state in (State.RUN, State.SSUSP):
            ending.suspend(self.state, job, State.USUSP)
        self._settle()

    def resume(self, job: Job, now: float) -> None:
        """Resume a job as bresume does: a started one is SSUSP before it runs again."""
        self.advance(now)
        if job.state is State.PSUSP:
            job.change(State.PEND, self.state.now)
        elif job.state is State.USUSP:
            job.change(State.SSUSP, self.state.now)
        self.state.touch()
        self._settle()

    def requeue(self, job: Job, now: float) -> None:
        """Requeue a started job as brequeue does."""
        self.advance(now)
        if job.started and not job.told:
            job.requeue = True
            ending.terminate(self.state, job, "")
        self._settle()

    def set_host(self, name: str, closed: Closed | None, now: float) -> None:
        """Close a host, or open it (None).

        Jobs on a host that is unavailable die; rerunnable ones wait again.
        """
        self.advance(now)
        state = self.state
        at = state.hosts.index[name]
        if closed is None:
            state.closed.pop(at, None)
        else:
            state.closed[at] = closed
        state.open[at] = closed is None and bool(state.hosts.compute[at])
        if closed is Closed.UNAVAILABLE:
            for job in [job for job in state.started() if state.uses(job, at)]:
                job.requeue = job.request.rerunnable and not job.told
                ending.terminate(state, job, jobs.HOST_FAILED, hard=True)
        state.touch()
        self._settle()

    # Reports on real jobs

    def launched(self, job: Job, run: int, pid: int, now: float) -> None:
        """A real job has a process."""
        self.advance(now)
        if job.run == run and job.started:
            job.pid = pid
            job.said.append((self.state.now, f"Starting (Pid {pid})"))
            home, where = job.request.env.get("HOME", "/"), job.request.cwd
            running = f"Running with execution home <{home}, Execution CWD <{where}>, Execution Pid <{pid}>"
            job.said.append((self.state.now, running))

    def exited(self, job: Job, run: int, code: int, now: float) -> None:
        """All processes of a run are gone; `code` is 128 + n where signal n has ended it."""
        self.advance(now)
        if job.run == run and job.started and job.gone_code is None:
            ending.gone(self.state, job, code)
        self._settle()
