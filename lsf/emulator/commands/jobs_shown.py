"""bjobs and bhist: what shows jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from lsf.emulator.commands.context import FAILED, Answer, Call, failed
from lsf.emulator.commands.options import split
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import ENDED, STARTED, State
from lsf.emulator.manners import Manners
from lsf.emulator.text import bjobs, columns, job_fields, long_job, times

PADDED = {"FROM_HOST": (29, 30), "EXEC_HOST": (20, 20)}
TABLE = ["jobid", "user", "stat", "queue", "from_host", "exec_host", "job_name", "submit_time"]
MORE = ["proj_name", "cpu_used", "mem", "swap", "pids", "start_time", "finish_time"]
KINDS: dict[str, tuple[str, Callable[[Job], bool]]] = {
    "a": ("No job found", lambda job: True),
    "d": ("No DONE/EXIT job found", lambda job: job.state in ENDED),
    "r": ("No running job found", lambda job: job.state in STARTED),
    "s": ("No suspended job found", lambda job: job.state in (State.PSUSP, State.USUSP, State.SSUSP)),
    "p": ("No pending job found", lambda job: job.state is State.PEND),
    "": ("No unfinished job found", lambda job: job.state not in ENDED),
}
"""Option -> what is said if there is no such job, and which jobs it shows."""


def bjobs_command(call: Call) -> Answer:
    """Jobs: one's own unfinished ones, or those of the ids."""
    flags = {"noheader", "json", "w", "W", "l", "UF", "X", "a", "d", "p", "r", "s", "x", "sum"}
    given, ids = split(call.words, {"u", "q", "J", "m", "P", "o", "g"}, flags, command="bjobs")
    lsf = call.lsf
    hidden = lsf.spend("missing")
    jobs = [job for job in lsf.cluster.state.jobs.values() if not (hidden and job.started)]
    said, code = "", 0
    if wanted := [word for word in ids if word != "0"]:
        by_id = {str(job.id): job for job in jobs}
        said = "".join(f"Job <{word}> is not found\n" for word in wanted if word not in by_id)
        code = FAILED if said else 0
        jobs = [by_id[word] for word in wanted if word in by_id]
    else:
        jobs, said = _chosen(call, given, jobs)
        code = FAILED if said and lsf.manners.consistent_exit else 0
    out = _shown(call, given, jobs)
    if isinstance(out, Answer):
        return out
    return Answer(out=out, err=said, code=lsf.manners.bjobs_code or code)


def _chosen(call: Call, given: dict[str, str], jobs: list[Job]) -> tuple[list[Job], str]:
    """The jobs that the options ask for, and what is said where there is none."""
    kind = next((kind for kind in "adrsp" if kind in given), "")
    text, fits = KINDS[kind]
    user, queue, name = given.get("u", call.user), given.get("q"), given.get("J")
    found = [
        job
        for job in jobs
        if fits(job)
        and user in ("all", job.request.user)
        and queue in (None, job.request.queue)
        and (name is None or _matches(name, job_fields.name(job)))
    ]
    where = f" in queue <{queue}>" if queue else ""
    return found, "" if found else f"{text}{where}\n"


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _manners(call: Call) -> Manners:
    """LSF's, but with short lists of hosts where the caller's environment wants them."""
    short = call.env.get("LSB_SHORT_HOSTLIST") == "1"
    return replace(call.lsf.manners, short_hosts=True) if short else call.lsf.manners


def _shown(call: Call, given: dict[str, str], jobs: list[Job]) -> str | Answer:
    state, manners = call.lsf.cluster.state, _manners(call)
    wish = given.get("o") or call.env.get("LSB_BJOBS_FORMAT", "")
    if wish and not {"l", "w", "W", "UF"} & given.keys():
        return _custom(call, given, wish, jobs)
    if not jobs:
        return ""
    if "l" in given or "UF" in given:
        blocks = [long_job.blocks(job, state, whole="UF" in given) for job in jobs]
        return f"\n{long_job.LINE}\n\n".join(["", *blocks])[len(long_job.LINE) + 3 :]
    rows = [job_fields.row(job, TABLE + MORE, state, manners) for job in jobs]
    if "W" in given:
        return bjobs.wide([_slashed(row, job) for row, job in zip(rows, jobs, strict=True)])
    text = bjobs.wide(rows, more=False) if "w" in given else bjobs.table(rows)
    return text if "noheader" not in given else text.partition("\n")[2]


def _custom(call: Call, given: dict[str, str], wish: str, jobs: list[Job]) -> str | Answer:
    state, manners = call.lsf.cluster.state, _manners(call)
    try:
        form = columns.parse(wish, job_fields.WIDTHS, job_fields.ALIASES)
    except columns.FormatError as error:
        return failed(f"{error}\n")
    fields = [column.field.lower() for column in form.columns]
    rows = [job_fields.row(job, fields, state, manners) for job in jobs]
    if "json" in given:
        if "noheader" in given:
            return failed("-json conflicts with -noheader\n")
        return columns.as_json("bjobs", "JOBS", form, rows)
    padding = PADDED if manners.padded_hosts else None
    header = "noheader" not in given
    return columns.table(form, rows, header=header, padding=padding) if jobs else ""


def _slashed(row: dict[str, str], job: Job) -> dict[str, str]:
    stamps = {"SUBMIT_TIME": job.submitted, "START_TIME": job.start, "FINISH_TIME": job.end}
    written = {key: times.slashed(when) if when is not None else "" for key, when in stamps.items()}
    return row | written | {"CPU_USED": "000:00:00.00"}


def bhist_command(call: Call) -> Answer:
    """Jobs and what has happened to them, finished ones too."""
    given, ids = split(call.words, {"u", "q", "J", "n"}, {"l", "a", "d", "p", "r", "w"}, command="bhist")
    state = call.lsf.cluster.state
    if ids:
        by_id = {str(job.id): job for job in state.jobs.values()}
        if unknown := [word for word in ids if word not in by_id]:
            return failed("".join(f"Job <{word}>: No matching job found\n" for word in unknown))
        jobs = [by_id[word] for word in ids]
    else:
        user = given.get("u", call.user)
        jobs = [job for job in state.jobs.values() if user in ("all", job.request.user)]
        if "a" not in given:
            jobs = [job for job in jobs if not job.ended]
    if not jobs:
        return failed("No matching job found\n")
    if "l" in given:
        return Answer(out=f"{long_job.LINE}\n".join(f"{long_job.history(job, state)}\n" for job in jobs))
    return Answer(out=long_job.summary(jobs, state))


def bacct_command(call: Call) -> Answer:
    """Jobs that have ended, as the accounting has them; -D: those of them that started in a span of time."""
    given, ids = split(call.words, {"u", "D", "q", "f"}, {"l", "w", "b", "d", "e"}, command="bacct")
    if "l" not in given:
        return failed("bacct without -l is not emulated\n")
    state = call.lsf.cluster.state
    try:
        since, until = _span(given["D"]) if "D" in given else (float("-inf"), float("inf"))
    except ValueError:
        return failed(f"{given['D']}: Bad time specification\n")
    user = given.get("u", call.user)
    return Answer(
        out=long_job.accounts(
            [
                job
                for job in state.jobs.values()
                if job.ended
                and user in ("all", job.request.user)
                and (not ids or str(job.id) in ids)
                and ("D" not in given or (job.start is not None and since <= job.start < until))
            ],
            state,
        )
    )


def _span(text: str) -> tuple[float, float]:
    """`2026/11/23/04:20,2026/11/23/05:00` in Unix seconds."""
    begin, end = (time.mktime(time.strptime(one, "%Y/%m/%d/%H:%M")) for one in text.split(","))
    return begin, end
