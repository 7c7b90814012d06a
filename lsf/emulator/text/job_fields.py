"""Every field of a job that bjobs can print."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lsf.emulator.core.jobs import WORDS, Job
from lsf.emulator.core.model import State
from lsf.emulator.core.state import ClusterState
from lsf.emulator.manners import Manners
from lsf.emulator.text import times

Value = Callable[[Job, ClusterState, Manners], str]


def exec_host(job: Job, state: ClusterState, manners: Manners) -> str:
    """The hosts of a job: its launch host, then every host once a slot, or `42*host`."""
    if job.placement is None:
        return ""
    hosts = zip(job.placement.hosts.tolist(), job.placement.slots.tolist(), strict=True)
    named = [(state.hosts.names[at], count) for at, count in hosts]
    words = [job.launch_host] if job.launch_host else []
    if manners.short_hosts:
        words += [f"{count}*{name}" if count > 1 else name for name, count in named]
    else:
        words += [name for name, count in named for _ in range(count)]
    return ":".join(words)


def command(job: Job) -> str:
    """Its command as LSF shows it."""
    return job.request.shown or " ".join(job.request.words)


def name(job: Job) -> str:
    """Its name; a job without one is called like its command."""
    return job.request.name or command(job)


def slots(job: Job) -> int:
    """Return the slots that it asks for, with that of a launch host."""
    return job.request.demand.slots + job.request.demand.launch


def stamp(when: float | None, manners: Manners) -> str:
    """A time, as the site prints it; "" for none."""
    if when is None:
        return ""
    return times.long(when) if manners.long_times else times.short(when)


def _finish(job: Job, state: ClusterState, manners: Manners) -> str:
    if job.end is not None:
        return stamp(job.end, manners)
    if not job.started or (end := job.expected_end(state.now)) is None:
        return ""
    return f"{stamp(end, manners)} L"


def _exit_code(job: Job, state: ClusterState, manners: Manners) -> str:
    return "" if manners.no_exit_codes or not job.code else str(job.code)


def _exit_reason(job: Job, state: ClusterState, manners: Manners) -> str:
    return f"{job.why}: {WORDS[job.why]}" if job.code and job.why else ""


def _time_left(job: Job, state: ClusterState, manners: Manners) -> str:
    return f"{times.hours(job.left_s(state.now))} L" if job.limit_s and job.started else ""


def _complete(job: Job, state: ClusterState, manners: Manners) -> str:
    return f"{100 * job.ran(state.now) / job.limit_s:.2f}% L" if job.limit_s and job.started else ""


def _used_s(job: Job, state: ClusterState, manners: Manners) -> str:
    return f"{job.ran(state.now) if job.started or job.ended else 0:.0f} second(s)"


def _estimate(job: Job, state: ClusterState, manners: Manners) -> str:
    kept = state.reservation
    return stamp(kept.start, manners) if kept is not None and kept.job == job.id else ""


def _where(job: Job, count: bool) -> str:
    if job.placement is None:
        return ""
    alone = int(bool(job.launch_host))
    return str((len(job.placement.hosts) if count else int(job.placement.slots.sum())) + alone)


FIELDS: Mapping[str, tuple[int, Value]] = {
    "jobid": (7, lambda job, state, manners: str(job.id)),
    "jobindex": (8, lambda job, state, manners: "0"),
    "stat": (5, lambda job, state, manners: job.state.value),
    "user": (7, lambda job, state, manners: job.request.user),
    "user_group": (15, lambda job, state, manners: job.request.group),
    "queue": (10, lambda job, state, manners: job.request.queue),
    "job_name": (10, lambda job, state, manners: name(job)),
    "proj_name": (11, lambda job, state, manners: job.request.project),
    "pids": (20, lambda job, state, manners: str(job.pid) if job.pid and job.started else ""),
    "exit_code": (10, _exit_code),
    "exit_reason": (50, _exit_reason),
    "from_host": (11, lambda job, state, manners: job.request.from_host),
    "first_host": (11, lambda job, state, manners: exec_host(job, state, manners).partition(":")[0]),
    "exec_host": (11, exec_host),
    "nexec_host": (10, lambda job, state, manners: _where(job, True)),
    "submit_time": (15, lambda job, state, manners: stamp(job.submitted, manners)),
    "start_time": (15, lambda job, state, manners: stamp(job.start, manners)),
    "estimated_sim_start_time": (25, _estimate),
    "finish_time": (16, _finish),
    "nthreads": (10, lambda job, state, manners: ""),
    "exec_home": (15, lambda job, state, manners: ""),
    "exec_cwd": (25, lambda job, state, manners: job.request.cwd if job.pid else ""),
    "sub_cwd": (25, lambda job, state, manners: job.request.cwd),
    "output_file": (25, lambda job, state, manners: job.request.output.replace("%J", str(job.id))),
    "error_file": (25, lambda job, state, manners: job.request.error.replace("%J", str(job.id))),
    "output_dir": (15, lambda job, state, manners: ""),
    "pend_time": (12, lambda job, state, manners: f"{job.in_states(state.now).get(State.PEND, 0.0):.0f}"),
    "pend_reason": (11, lambda job, state, manners: state.blocked.get(job.id, "")),
    "nreq_slot": (10, lambda job, state, manners: str(slots(job))),
    "slots": (5, lambda job, state, manners: str(slots(job))),
    "alloc_slot": (20, exec_host),
    "nalloc_slot": (10, lambda job, state, manners: _where(job, False)),
    "run_time": (15, _used_s),
    "cpu_used": (10, lambda job, state, manners: "0.0 second(s)" if job.started else ""),
    "mem": (10, lambda job, state, manners: "0 Mbytes" if job.started else ""),
    "swap": (10, lambda job, state, manners: "0 Mbytes" if job.started else ""),
    "idle_factor": (11, lambda job, state, manners: "0.00" if job.started else ""),
    "runtimelimit": (12, lambda job, state, manners: f"{job.limit_s / 60:.1f}" if job.limit_s else ""),
    "time_left": (11, _time_left),
    "%complete": (11, _complete),
    "effective_resreq": (17, lambda job, state, manners: job.request.requirement),
    "gpu_num": (7, lambda job, state, manners: ""),
    "gpu_alloc": (30, lambda job, state, manners: ""),
    "command": (15, lambda job, state, manners: command(job)),
}
"""Field -> its width in a table without a delimiter, and its value."""

ALIASES = {
    "id": "jobid",
    "ugroup": "user_group",
    "proj": "proj_name",
    "project": "proj_name",
    "name": "job_name",
    "q": "queue",
    "nthread": "nthreads",
    "eresreq": "effective_resreq",
    "esstart_time": "estimated_sim_start_time",
    "nexec_hosts": "nexec_host",
    "cmd": "command",
    "rtlimit": "runtimelimit",
}
WIDTHS = {field: width for field, (width, _) in FIELDS.items()}


def row(job: Job, fields: list[str], state: ClusterState, manners: Manners) -> dict[str, str]:
    """The values of some fields, by their names in capitals; "" where there is none."""
    return {field.upper(): FIELDS[field][1](job, state, manners) for field in fields}
