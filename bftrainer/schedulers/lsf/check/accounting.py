"""Reads main jobs from LSF's own accounting: a check of what polls have seen.

bacct knows the jobs that have ended, for as long as lsb.acct is kept; bjobs those that have not, and for a
while (CLEAN_PERIOD) those that have. A job that ends and starts again counts once.
"""

from __future__ import annotations

import re
from datetime import datetime

from bftrainer.errors import SchedulerError
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Clock
from bftrainer.schedulers.lsf import commands, values
from bftrainer.schedulers.lsf.command import reason
from bftrainer.schedulers.lsf.pilot import NAME
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.lsf.text import jobs_text, tables
from bftrainer.schedulers.shared.text import TextError

HEADER = "Accounting information about jobs that are"
HEAD = re.compile(r"Job <([0-9]{1,12}(?:\[[0-9]{1,9}\])?)>(?:, Job Name <(.*?)>)?, User <")
DISPATCHED = re.compile(r"(.{12,30}?): (?:\[[0-9]+\] )?[Dd]ispatched ")
MINUTE_S = 60.0


async def count(questions: Questions, clock: Clock, since: float) -> Accounted:
    """Return what LSF says of main jobs that started since then; where it does not answer, why."""
    behind_s = clock.behind_s()  # LSF tells times of the machine's clock
    now, since = clock.now() + behind_s, since + behind_s
    between = f"{_minute(since)},{_minute(now + MINUTE_S)}"
    form = questions.scope.form
    try:
        ended = await questions.run(questions.path_of(commands.accounts(between)), question=True)
        shown = await questions.run(questions.path_of(commands.all_jobs(form)), question=True)
        finished = await questions.apart(lambda: of_bacct(ended.out, since, now))
        known = await questions.apart(lambda: of_bjobs(shown.out, shown.err, since, now))
    except SchedulerError as error:
        return Accounted(why=str(error))
    except TextError as error:
        return Accounted(why=reason(ended, f"LSF's accounting: {error}"))
    return Accounted(started=len(finished | known))


def of_bacct(text: str, since: float, now: float) -> frozenset[str]:
    """The main jobs that were dispatched since then, as `bacct -l` says.

    Raises:
        TextError: this is not what bacct prints.
    """
    if HEADER not in text:
        raise TextError(f"bacct says nothing of jobs: {text[:80]!r}")
    found = set()
    job = ""
    for line in tables.unwrapped(text):
        if head := HEAD.match(line):
            job = "" if NAME.fullmatch(head[2] or "") else head[1]
        elif job and (told := DISPATCHED.match(line)):
            at = values.moment(told[1], now)
            if at is not None and at.at + at.rounded_s > since:
                found.add(job)
    return frozenset(found)


def of_bjobs(text: str, said: str, since: float, now: float) -> frozenset[str]:
    """The main jobs that have started since then, of those that bjobs knows.

    Raises:
        TextError: this is not what bjobs prints.
    """
    return frozenset(
        job.id
        for job in jobs_text.jobs(text, said, now, ended=True)
        if job.started is not None and job.started + job.rounded_s > since and not NAME.fullmatch(job.name)
    )


def _minute(time: float) -> str:
    """A time as LSF's commands take it, in the machine's zone."""
    return datetime.fromtimestamp(time).strftime("%Y/%m/%d/%H:%M")  # noqa: DTZ006  LSF's own are local
