"""LSF's accounting, lsb.acct: a JOB_FINISH record of each job that has ended, as LSF 10.1 writes it."""

from __future__ import annotations

from lsf.emulator.core.jobs import Job
from lsf.emulator.core.state import ClusterState
from lsf.emulator.text.job_fields import command, slots

FILE = "lsb.acct"
DONE, EXIT = 64, 32
OPTIONS, OPTIONS_3 = 33554438, 5136
FACTOR = "60.0"
UNMEASURED = ("-1.000000", "-1.000000", *["-1"] * 17)
"""Fields of a job whose use of the machine is not known."""


def record(job: Job, state: ClusterState) -> str:
    """The line of a job that has ended. A job that was requeued has the times of its last run."""
    request, found = job.request, job.placement
    start, end = job.start or 0.0, job.end or 0.0
    hosts = [] if found is None else list(zip(found.hosts.tolist(), found.slots.tolist(), strict=True))
    named = [job.launch_host] if job.launch_host else []
    named += [state.hosts.names[at] for at, count in hosts for _ in range(count)]
    asked = sorted(request.demand.only or ())
    words = [
        *("JOB_FINISH", "10.1", int(end), job.id, request.uid, OPTIONS, slots(job), int(job.submitted), 0, 0),
        *(int(start), request.user, request.queue, request.requirement, "", "", request.from_host, _cwd(job)),
        *("", request.output, request.error, f"{job.id % 100}/{int(job.submitted)}.{job.id}"),
        *(len(asked), *asked, len(named), *named, EXIT if job.code else DONE, _Bare(FACTOR), request.name),
        *(command(job), *map(_Bare, UNMEASURED), "", request.project, (job.code or 0) << 8, slots(job)),
        *("", "", 0, 2048, 0, "", "", "", "", 0, "", 0, "", -1, f"/{request.user}", "", "", "", -1, "", ""),
        *(OPTIONS_3, "", int(start or job.submitted), "", "", 2, 1032, "0", 1033, "0", 0, 0, 0, 2048),
        *("select[type == any] order[r15s:pg] ", "", -1, "", -1, 0, "", 0, 0, "", int(end) - int(start)),
        *("", 0, "", _Bare("0.000000"), *map(_Bare, ["0.00"] * 4), len({*named}), *dict.fromkeys(named)),
        *(int(job.limit_s) or -1, 0, 0, 0),
    ]
    return " ".join(map(_quoted, words)) + "\n"


class _Bare(str):
    """A number that is written as it is."""

    __slots__ = ()


def _quoted(word: object) -> str:
    if isinstance(word, str) and not isinstance(word, _Bare):
        return '"' + word.replace('"', '""') + '"'
    return str(word)


def _cwd(job: Job) -> str:
    return job.request.cwd.removeprefix("/") and job.request.cwd
