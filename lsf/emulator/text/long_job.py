"""Whole jobs in words: bjobs -l and bhist -l."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lsf.emulator.core import jobs
from lsf.emulator.core.jobs import Dispatched, Job
from lsf.emulator.core.model import WAITING, State
from lsf.emulator.core.state import ClusterState
from lsf.emulator.text import times
from lsf.emulator.text.bjobs import wrapped
from lsf.emulator.text.job_fields import command, name, slots

LINE = "-" * 78
CSM_FIRST = 8197
"""Lead of CSM's number of a job over LSF's."""
RUSAGE = re.compile(r"mem=(\d+)")
USED = """
MEMORY USAGE:
MAX MEM: 9 Mbytes;  AVG MEM: 8 Mbytes; MEM Efficiency: 0.31%

CPU USAGE:
CPU PEAK: 0.00 ;  CPU PEAK DURATION: 0 second(s)
CPU AVERAGE EFFICIENCY: 0.00% ;  CPU PEAK EFFICIENCY: 0.00%
"""
"""Nothing is measured: a small job's figures."""
ACCOUNTED = (
    "\nAccounting information about jobs that are: \n",
    "  - submitted by all users.\n",
    "  - accounted on all projects.\n",
    "  - completed normally or exited\n",
    "  - executed on all hosts.\n",
    "  - submitted to all queues.\n",
    "  - accounted on all service classes.\n",
)
COLUMNS = (State.PEND, State.PSUSP, State.RUN, State.USUSP, State.SSUSP)


def blocks(job: Job, state: ClusterState, *, whole: bool = False) -> str:
    """A job as bjobs -l shows it; `whole`: lines are not wrapped (-UF)."""
    request, site = job.request, state.site
    priority = f", Job Priority <{site.job_priority}>" if site.job_priority else ""
    text = wrapped(
        f"Job <{job.id}>{_named(job)}, User <{request.user}>, Project <{request.project}>, "
        f"Status <{job.state}>, Queue <{request.queue}>{priority}, Command <{command(job)}>",
        whole=whole,
    )
    tasks = f", {slots(job)} Task(s)" if slots(job) > 1 else ""
    submitted = f"Submitted from host <{request.from_host}>, CWD <{_cwd(job)}>{tasks}{_asked(job)};"
    text += "".join(wrapped(line, whole=whole) for line in _events(job, state, submitted))
    if job.limit_s:
        text += f"\n RUNLIMIT\n {job.limit_s / 60:.1f} min\n"
    if request.estimate_s:
        text += (
            f" ESTIMATED_RUNTIME:\n {request.estimate_s / 60:.1f} min of {request.from_host} based on user "
            "provided runtime estimation.\n"
        )
    if job.state in WAITING:
        text += "\n PENDING REASONS:\n" + "".join(f" {reason};\n" for reason in reasons(job, state))
    return text


def history(job: Job, state: ClusterState) -> str:
    """A job as bhist -l shows it."""
    request = job.request
    text = wrapped(
        f"Job <{job.id}>{_named(job)}, User <{request.user}>, Project <{request.project}>, "
        f"Command <{command(job)}>"
    )
    queue = f"to Queue <{request.queue}>"
    submitted = f"Submitted from host <{request.from_host}>, {queue}, CWD <{_cwd(job)}>{_asked(job)};"
    text += "".join(wrapped(line) for line in _events(job, state, submitted))
    if job.limit_s:
        text += f"\n RUNLIMIT\n {job.limit_s / 60:.1f} min of {request.from_host}\n"
    text += USED
    until = job.end if job.end is not None else state.now
    spent = job.in_states(state.now)
    counts = [int(spent.get(kind, 0.0) + 1e-6) for kind in COLUMNS]
    text += f"\nSummary of time in seconds spent in various states by  {times.event(until)}\n"
    return text + summary_rows([counts])


def account(job: Job, state: ClusterState) -> str:
    """A job that has ended as bacct -l shows it."""
    request, start = job.request, job.start if job.start is not None else job.submitted
    end = job.end if job.end is not None else state.now
    text = wrapped(
        f"Job <{job.id}>{_named(job)}, User <{request.user}>, Project <{request.project}>, "
        f"Status <{job.state}>, Queue <{request.queue}>, Command <{command(job)}>"
    )
    submitted = f"Submitted from host <{request.from_host}>, CWD <{_cwd(job)}>{_asked(job)};"
    text += "".join(wrapped(line) for line in _events(job, state, submitted))
    figures = f"{0.02:>10}{start - job.submitted:>9.0f}{end - job.submitted:>15.0f}"
    ended = "done" if not job.code else "exit"
    return (
        f"{text}\nAccounting information about this job:\n"
        "     CPU_T     WAIT     TURNAROUND   STATUS     HOG_FACTOR    MEM    SWAP\n"
        f"{figures}{ended:>9}{'0.0000':>15}{'9M':>8}{'0M':>8}\n{LINE}\n"
    )


def accounts(found: Sequence[Job], state: ClusterState) -> str:
    """Jobs as bacct -l shows them."""
    parts = [*ACCOUNTED, f"{LINE}\n", *(f"\n{account(job, state)}" for job in found)]
    done = sum(not job.code for job in found)
    parts.append(
        "\nSUMMARY:      ( time unit: second )\n"
        f" Total number of done jobs: {done:>7}      Total number of exited jobs: {len(found) - done:>5}\n"
    )
    return "".join(parts)


def summary_rows(rows: Sequence[Sequence[int]]) -> str:
    """PEND, PSUSP, RUN, USUSP and SSUSP of each job, with the columns UNKWN and TOTAL."""
    lines = (
        ["PEND", "PSUSP", "RUN", "USUSP", "SSUSP", "UNKWN", "TOTAL"],
        *([*map(str, row), "0", str(sum(row))] for row in rows),
    )
    return "".join("  " + " ".join(f"{cell:<8}" for cell in line).rstrip() + "\n" for line in lines)


def summary(found: Sequence[Job], state: ClusterState) -> str:
    """Jobs as bhist shows them without -l."""
    lines = ["Summary of time in seconds spent in various states:"]
    lines.append("JOBID   USER    JOB_NAME  PEND    PSUSP   RUN     USUSP   SSUSP   UNKWN   TOTAL")
    for job in found:
        spent = job.in_states(state.now)
        counts = [int(spent.get(kind, 0.0) + 1e-6) for kind in COLUMNS]
        cells = " ".join(f"{count:<7}" for count in (*counts, 0, sum(counts))).rstrip()
        lines.append(f"{job.id:<7} {job.request.user[:7]:<7} {name(job)[:9]:<9} {cells}")
    return "".join(f"{line}\n" for line in lines)


def reasons(job: Job, state: ClusterState) -> list[str]:
    """Return why a job waits, with numbers of hosts as LSF has them."""
    if job.state is State.PSUSP:
        return ["The job was suspended by the user while pending"]
    if job.id in state.blocked:
        return [f"The {state.blocked[job.id]} has reached its job slot limit"]
    demand, found = job.request.demand, []
    compute = state.hosts.compute
    closed = sum(bool(compute[at]) for at in state.closed)
    named = state.hosts.allowed(demand) & state.open
    left_out = int(compute.sum()) - closed - int(named.sum()) if demand.only is not None else 0
    busy = int(((state.free <= 0) & named).sum())
    for text, count in (
        ("Not enough processors to meet the job's spanning requirement", busy),
        ("Not specified in job submission", left_out),
        ("Closed by LSF administrator", closed),
    ):
        if count:
            found.append(f"{text}: {count} {'host' if count == 1 else 'hosts'}")
    return found or ["New job is waiting for scheduling"]


def _named(job: Job) -> str:
    return f", Job Name <{job.request.name}>" if job.request.name else ""


def _cwd(job: Job) -> str:
    home = job.request.env.get("HOME", "")
    return (
        job.request.cwd.replace(home, "$HOME", 1)
        if home and job.request.cwd.startswith(home)
        else job.request.cwd
    )


def _asked(job: Job) -> str:
    request, only = job.request, job.request.demand.only
    asked = f", Requested Resources <{request.requirement}>" if request.requirement else ""
    return asked + (f", Specified Hosts <{'>, <'.join(sorted(only))}>" if only else "")


def _events(job: Job, state: ClusterState, submitted: str) -> list[str]:
    events = [(job.submitted, submitted)]
    for when, said in job.said:
        told = [f"{said};"] if isinstance(said, str) else _dispatched(job, said, state)
        events += [(when, text) for text in told]
    if job.code is not None and job.end is not None:
        code = "Done successfully" if not job.code else f"Exited with exit code {job.code}"
        events.append((job.end, f"{code}. The CPU time used is 0.2 seconds;"))
        ended = "<done>" if not job.code else "<exit>"
        why = f"; {job.why}: {jobs.WORDS.get(job.why, 'job ended')}" if job.why and job.code else ""
        events.append((job.end, f"Completed {ended}{why};"))
    return [f"{times.event(when)}: {text}" for when, text in events]


def _dispatched(job: Job, run: Dispatched, state: ClusterState) -> list[str]:
    """Return the lines on a run's hosts, and the allocation of a job with a launch host."""
    counts = zip(run.placement.hosts.tolist(), run.placement.slots.tolist(), strict=True)
    names = [run.launch_host] if run.launch_host else []
    names += [
        f"{count}*{state.hosts.names[at]}" if count > 1 else state.hosts.names[at] for at, count in counts
    ]
    hosts, count = " ".join(f"<{name}>" for name in names), slots(job)
    effective = RUSAGE.sub(r"mem=\1.00", job.request.requirement)
    said = [
        f"Dispatched {count} Task(s) on Host(s) {hosts}, Allocated {count} Slot(s) on Host(s) {hosts}, "
        f"Effective RES_REQ <select[type == local] order[r15s:pg] {effective} >;"
    ]
    return said + ([f"CSM_ALLOCATION_ID={job.id + CSM_FIRST}"] if run.launch_host else [])
