"""Reads jobs that have not ended from bjobs, jobstat and the planner's file. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bftrainer.model.machine import Totals
from bftrainer.model.text import shown
from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.rows import ENDED, LsfJobRow, PlannedStart
from bftrainer.schedulers.lsf.text import tables
from bftrainer.schedulers.lsf.text.tables import Record
from bftrainer.schedulers.shared.text import TextError

NO_JOBS = re.compile(
    r"^No (?:unfinished job|running job|pending job|suspended job|job|DONE/EXIT job) found", re.MULTILINE
)
"""Words of bjobs on standard error when it has nothing to show."""
JOB_ID = re.compile(r"[1-9][0-9]{0,11}(?:\[[0-9]{1,9}\])?")
NO_ESCAPES = str.maketrans({"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
"""JSON that LSF has not quoted well turns the user EXAMPLE\\bob into one with a backspace."""
MOST_REASON = 200
"""Characters kept of a reason, at most."""


def jobs(text: str, said: str, now: float, *, ended: bool = False) -> tuple[LsfJobRow, ...]:
    """The jobs that bjobs shows, with what it `said` on its standard error; those that have ended are left
    out, unless `ended`. A job that cannot be read is left out: its slots still count as active on its host.

    Raises:
        TextError: it shows no jobs and does not say that there are none.
    """
    if not text.strip():
        if NO_JOBS.search(said):
            return ()
        raise TextError(f"it printed nothing, and did not say that there are no jobs: {said[:80]!r}")
    found = (_job(row, now) for row in tables.records(text))
    return tuple(job for job in found if job is not None and (ended or job.state not in ENDED))


def _job(row: Record, now: float) -> LsfJobRow | None:
    name = row.get("JOBID", "")
    index = row.get("JOBINDEX", "")
    if index and index != "0" and "[" not in name:
        name = f"{name}[{index}]"
    if not JOB_ID.fullmatch(name) or not row.get("STAT"):
        return None
    submitted = values.moment(row.get("SUBMIT_TIME", ""), now)
    started = values.moment(row.get("START_TIME", ""), now)
    hosts = values.exec_hosts(row.get("EXEC_HOST", ""))
    return LsfJobRow(
        name,
        row["STAT"],
        row.get("USER", "").translate(NO_ESCAPES),
        row.get("QUEUE", ""),
        values.count(row.get("NREQ_SLOT", "")) or sum(slots for _, slots in hosts),
        hosts,
        submitted.at if submitted else None,
        started.at if started else None,
        values.left_s(row.get("TIME_LEFT", "")),
        shown(row.get("PEND_REASON", ""))[:MOST_REASON],
        row.get("JOB_NAME", ""),
        max((moment.rounded_s for moment in (submitted, started) if moment), default=values.MINUTE_S),
    )


@dataclass(frozen=True, slots=True)
class Stat:
    """jobstat's three lists of jobs, and how many nodes of how many are in use. Each job is a row of texts by
    the names of its columns."""

    running: tuple[Record, ...]
    eligible: tuple[Record, ...]
    blocked: tuple[Record, ...]
    used: int | None = None
    nodes: int | None = None


def jobstat(text: str) -> Stat:
    """Parse the output of jobstat.

    Raises:
        TextError: a list is missing.
    """
    parts = re.split(r"(?m)^-+ (Running|Eligible|Blocked) Jobs: [0-9]+(.*?) -+ *$", text)
    found = {name: _stat_rows(body) for name, body in zip(parts[1::3], parts[3::3], strict=True)}
    if len(found) < 3:
        raise TextError(f"jobstat shows {', '.join(found) or 'no list'} only: {text[:80]!r}")
    use = re.search(r"\(([0-9]+) of ([0-9]+) nodes", text)
    used, nodes = (int(use[1]), int(use[2])) if use else (None, None)
    return Stat(found["Running"], found["Eligible"], found["Blocked"], used, nodes)


def totals(stat: Stat) -> Totals:
    """Return how many jobs and nodes jobstat's lists have."""
    return Totals(
        running=len(stat.running),
        eligible=len(stat.eligible),
        blocked=len(stat.blocked),
        wanted=sum(values.count(row.get("Nodes", "")) for row in stat.eligible),
        used=stat.used,
        nodes=stat.nodes,
    )


def _stat_rows(body: str) -> tuple[Record, ...]:
    lines = [line for line in body.split("\n") if line.strip()]
    if not lines:
        return ()
    names = lines[0].split()
    found = []
    for line in lines[1:]:
        words = line.split()
        apart = 2 if "StartTime" in names or "QueueTime" in names else 1  # a date and a time
        at = next((i for i, name in enumerate(names) if name in ("StartTime", "QueueTime")), len(names))
        words = [*words[:at], " ".join(words[at : at + apart]), *words[at + apart :]]
        if at == len(names):
            words = line.split()
        if len(words) >= len(names):
            last = " ".join(words[len(names) - 1 :])
            found.append(dict(zip(names, [*words[: len(names) - 1], last], strict=True)))
    return tuple(found)


def plans(text: str) -> tuple[PlannedStart, ...]:
    """Parse lsb.allocation.plan.json, which LSF's planner writes. A plan that cannot be read is left out.

    Raises:
        TextError: it is not such a file.
    """
    try:
        rows = json.loads(text, strict=False)["PLANS"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TextError(f"no PLANS in the planner's file: {text[:80]!r}") from error
    if not isinstance(rows, list):
        raise TextError("the planner's PLANS are no list")
    return tuple(plan for row in rows if isinstance(row, dict) and (plan := _plan(row)) is not None)


def _plan(row: Mapping[str, object]) -> PlannedStart | None:
    start, finish = (values.number(str(row.get(key))) for key in ("START_TIME", "FINISH_TIME"))
    where = row.get("ALLOC")
    if start is None or finish is None or not isinstance(where, list):
        return None
    hosts = {
        str(one["HOST"]): _slots(one.get("RSRC"))
        for one in where
        if isinstance(one, dict) and values.HOST_NAME.fullmatch(str(one.get("HOST")))
    }
    return PlannedStart(str(row.get("JOB_ID", "")).rpartition("@")[2], float(start), float(finish), hosts)


def _slots(resources: object) -> int:
    named: Sequence[object] = resources if isinstance(resources, list) else ()
    amounts = (
        str(one.get("AMOUNT")) for one in named if isinstance(one, dict) and one.get("NAME") == "slots"
    )
    return sum(map(values.count, amounts))
