"""Signals, ends and requeues jobs."""

from __future__ import annotations

import signal

from lsf.emulator.core import jobs
from lsf.emulator.core.effects import Signal
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import WAITING, State
from lsf.emulator.core.state import ClusterState
from lsf.emulator.core.timers import What

SEQUENCE = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""Signals of bkill, one after the other."""
DEADLY = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGUSR2})
"""Signals that end a simulated job."""
UNHEARD = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGCONT})
"""Signals after which a suspended job needs no SIGCONT."""
NEVER_RAN = 130
"""The exit code of a job that was killed while it waited."""


def terminate(state: ClusterState, job: Job, why: str, *, hard: bool = False) -> None:
    """Begin to end a job by the usual signals, or (`hard`) by SIGKILL alone.

    A job that LSF is ending already goes on with its sequence, unless this is harder.
    """
    if job.state in WAITING:
        job.why = why
        finish(state, job, NEVER_RAN)
    elif job.started and job.gone_code is None and (hard or not job.told):
        job.why = job.why or why
        job.told = True
        job.steps = len(SEQUENCE) - 1 if hard or (state.site.kill_parallel and job.parallel) else 0
        state.touch()
        step(state, job)


def step(state: ClusterState, job: Job) -> None:
    """Send the next signal of the sequence."""
    number = SEQUENCE[min(job.steps, len(SEQUENCE) - 1)]
    job.steps += 1
    if number is not signal.SIGKILL:
        state.timers.set(state.now + state.site.terminate_interval_s, What.STEP, job.id, job.run)
    send(state, job, number)


def reached_limit(state: ClusterState, job: Job) -> None:
    """SIGUSR2 for a job that has reached its run limit, and SIGKILL where it has not gone after a while."""
    job.told, job.why, job.steps = True, jobs.RUN_LIMIT, len(SEQUENCE) - 1
    state.timers.set(state.now + state.site.limit_grace_s, What.STEP, job.id, job.run)
    state.touch()
    send(state, job, signal.SIGUSR2)


def send(state: ClusterState, job: Job, number: int) -> None:
    """Signal a started job; a suspended one is continued, so that it can hear the signal."""
    if job.gone_code is not None:
        return
    if job.request.duration_s is None:
        state.effects.append(Signal(job.id, job.run, number))
        if job.state is not State.RUN and number not in UNHEARD:
            state.effects.append(Signal(job.id, job.run, signal.SIGCONT))
    elif number == signal.SIGKILL or (number in DEADLY and not job.request.deaf):
        gone(state, job, 128 + number)


def gone(state: ClusterState, job: Job, code: int) -> None:
    """A run is over; LSF may learn it a little later."""
    job.gone_code = code
    if state.site.report_s:
        state.timers.set(state.now + state.site.report_s, What.REPORT, job.id, job.run)
    else:
        finish(state, job, code)


def finish(state: ClusterState, job: Job, code: int) -> None:
    """LSF knows that a run is over: the job has ended, or waits again."""
    state.release(job)
    codes = state.queues[job.request.queue].requeue_codes
    if job.start is not None and (job.requeue or (code in codes and not job.told)):
        job.wait_again(state.now, code)
    else:
        job.change(State.EXIT if code else State.DONE, state.now)
        job.code, job.end = code, state.now
        del state.active[job.id]
        state.timers.set(state.now + state.site.clean_s, What.CLEAN, job.id)
        if state.finished is not None:
            state.finished.append(job)
    state.touch()


def suspend(state: ClusterState, job: Job, into: State) -> None:
    """Stop a job's processes: SIGTSTP, which can be caught, for parallel jobs, SIGSTOP for others."""
    if job.state is State.RUN and job.request.duration_s is None:
        number = signal.SIGTSTP if job.parallel else signal.SIGSTOP
        state.effects.append(Signal(job.id, job.run, number))
    job.change(into, state.now)
    state.touch()
