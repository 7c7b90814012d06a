"""How many main jobs have started, by bacct and bjobs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bftrainer.schedulers.lsf import commands
from bftrainer.schedulers.lsf.check.accounting import count, of_bacct, of_bjobs
from bftrainer.schedulers.lsf.commands import Scope
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.shared.text import TextError
from lsf.emulator import sites
from tests.support.lsf_questions import Desk, moment
from tests.support.lsf_schedulers import Clock

NOW = moment("2026 Oct  8 18:00:00")
BACCT = """
Accounting information about jobs that are: 
  - submitted by all users.
  - completed normally or exited
------------------------------------------------------------------------------

Job <3329613>, User <u1>, Project <default>, Status <DONE>, Queue <pub.1h>,
                     Command <sleep 60>, Share group charged </all/u1>
Thu Oct  8 17:07:54: Submitted from host <login4>, CWD <$HOME>, Output File <l
                     sf.o%J>;
Thu Oct  8 17:08:44: Dispatched to <a3201>;
Thu Oct  8 17:09:51: Completed <done>.

Accounting information about this job:
     CPU_T     WAIT     TURNAROUND   STATUS     HOG_FACTOR    MEM    SWAP
      0.08       50            117     done         0.0007     5M    222M
------------------------------------------------------------------------------

Job <3329700[2]>, Job Name <bftrainer-0a1b2c3d-0123abcd0123abcd0123abcd0123abcd
                     -a3201>, User <bft>, Project <default>, Status <EXIT>, Queue <killable>
Thu Oct  8 17:20:00: Dispatched 42 Task(s) on Host(s) <42*a3201>, Allocated 42 Slot(s);
Thu Oct  8 17:30:00: Completed <exit>; TERM_OWNER: job killed by owner.
------------------------------------------------------------------------------

Job <3329701[4]>, Job Name <main>, User <u2>, Project <default>, Status <EXIT>
Thu Oct  8 16:00:00: [1] dispatched to <a3202>;
Thu Oct  8 17:30:00: [1] dispatched to <a3203>;
Thu Oct  8 17:31:00: Completed <exit>.
"""  # noqa: W291  as it is printed
JOBS = (
    "JOBID^JOBINDEX^STAT^USER^QUEUE^NREQ_SLOT^EXEC_HOST^SUBMIT_TIME^START_TIME^TIME_LEFT^PEND_REASON^JOB_NAME\n"
    "7^0^DONE^u^batch^1^c1^Oct  8 17:00^Oct  8 17:10^-^-^short\n"
    "8^0^RUN^u^batch^1^c1^Oct  8 15:00^Oct  8 15:10^-^-^long\n"
    "9^0^PEND^u^batch^1^-^Oct  8 17:00^-^-^-^waits\n"
    f"10^0^RUN^bft^killable^42^c2^Oct  8 17:00^Oct  8 17:40^-^-^bftrainer-0a1b2c3d-{'0123abcd' * 4}-c2\n"
)


def test_jobs_that_have_ended_count_by_their_dispatch_and_pilots_do_not() -> None:
    assert of_bacct(BACCT, NOW - 3600, NOW) == {"3329613", "3329701[4]"}
    assert of_bacct(BACCT, NOW - 2000, NOW) == {"3329701[4]"}
    with pytest.raises(TextError):
        of_bacct("bacct: lsb.acct: Permission denied\n", NOW - 3600, NOW)


def test_jobs_that_bjobs_knows_count_by_their_start() -> None:
    assert of_bjobs(JOBS, "", NOW - 3600, NOW) == {"7"}
    assert of_bjobs(JOBS, "", NOW - 4 * 3600, NOW) == {"7", "8"}


def test_an_emulated_lsf_has_each_job_once() -> None:
    desk = Desk(sites.small(3), now=NOW - 1800)
    for name in ("main", "x", f"bftrainer-0a1b2c3d-{'0123abcd' * 4}-h1"):
        desk.submit("-n", "42", "-J", name, "sleep", "9")
    desk.cluster.advance(desk.now)
    for job in list(desk.cluster.state.jobs.values())[1:]:
        desk.cluster.exited(job, 0, 0, NOW - 1740)
    fields = " ".join(commands.JOB_FIELDS) + " delimiter='^'"
    shown = desk.ask("bjobs", "-a", "-u", "all", "-o", fields).out
    said = desk.ask("bacct", "-l", "-u", "all", "-D", "2026/10/08/17:00,2026/10/08/18:01").out
    assert of_bacct(said, NOW - 3600, NOW) == {"102"}  # main job 101 runs
    assert of_bjobs(shown, "", NOW - 3600, NOW) == {"101", "102"}
    later = desk.ask("bacct", "-l", "-u", "all", "-D", "2026/10/08/17:50,2026/10/08/18:01").out
    assert not of_bacct(later, 0.0, NOW)
    assert desk.ask("bacct", "-l", "-D", "yesterday").code == 255


def test_without_bacct_it_says_why(tmp_path: Path) -> None:
    questions = Questions(Scope(), timeout_s=5.0, folder=str(tmp_path), environ=os.environ)
    found = asyncio.run(count(questions, Clock(), NOW))
    questions.close()
    assert found.started is None and "bacct" in found.why
