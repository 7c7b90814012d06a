"""How jobs have ended."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.lsf.rows import EndKind, LsfJobEnd
from bftrainer.schedulers.lsf.text import ends
from bftrainer.schedulers.shared.text import TextError
from tests.support.lsf_samples import sample


def shown(*rows: tuple[str, str, str, str]) -> str:
    names = ("JOBID", "STAT", "EXIT_CODE", "EXIT_REASON")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps({"COMMAND": "bjobs", "JOBS": len(found), "RECORDS": found}, indent=2)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (140, "", EndKind.LIMIT),
        (140, "TERM_RUNLIMIT: job killed after reaching LSF run time limit", EndKind.LIMIT),
        (130, "", EndKind.KILLED),
        (143, "", EndKind.KILLED),
        (137, "TERM_PREEMPT: job killed after preemption", EndKind.PREEMPTED),
        (137, "TERM_OWNER: job killed by owner", EndKind.KILLED),
        (137, "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit", EndKind.FAILED),
        (127, "", EndKind.FAILED),
        (1, "", EndKind.FAILED),
    ],
)
def test_ends_are_told_apart(code: int, reason: str, kind: EndKind) -> None:
    found = ends.ends(shown(("7", "EXIT", str(code), reason)))
    assert found["7"].kind is kind
    assert found["7"].code == code


def test_what_bjobs_leaves_open_bhist_may_know() -> None:
    text = shown(
        ("1", "DONE", "", ""), ("2", "EXIT", "-", ""), ("3", "RUN", "", ""), ("4", "EXIT", "", "TERM_PREEMPT")
    )
    assert set(ends.ends(text)) == {"1", "4"}
    remembered = (
        "Job <2>, User <u>, Project <p>\n"
        "Wed Jan 21 22:15:00: Exited with exit code 140. The CPU time used is 0.2 second\n"
        f"{' ' * 21}s;\n"
        "Wed Jan 21 22:15:00: Completed <exit>; TERM_RUNLIMIT: job killed after reaching\n"
        f"{' ' * 22}LSF run time limit;\n"
    )
    found = ends.of_jobs(["1", "2", "3", "5"], text, remembered)
    assert [found[job].kind for job in ("1", "2", "3", "5")] == [
        EndKind.DONE,
        EndKind.LIMIT,
        EndKind.VANISHED,
        EndKind.VANISHED,
    ]
    assert found["2"].words == "TERM_RUNLIMIT: job killed after reaching LSF run time limit"


def test_the_last_run_of_a_requeued_job_counts() -> None:
    once = "Wed Jan 21 22:15:00: Exited with exit code 137;\nWed Jan 21 22:15:00: Completed <exit>;\n"
    again = "Wed Jan 21 22:16:00: Dispatched 1 Task(s) on Host(s) <a>;\n"
    done = "Wed Jan 21 22:17:00: Done successfully. The CPU time used is 1.0 seconds;\n"
    head = "Job <7>, User <u>\n"
    assert ends.history(head + once)["7"].kind is EndKind.KILLED
    assert ends.history(head + once + again) == {}
    assert ends.history(head + once + again + done) == {"7": LsfJobEnd(EndKind.DONE, 0)}


def test_a_real_end_at_the_run_limit() -> None:
    found = ends.history(sample("bhist_l_runlimit.txt"))
    words = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"
    assert found == {"2211": LsfJobEnd(EndKind.LIMIT, 140, words)}


def test_what_is_no_answer_of_bjobs_says_nothing_of_ends() -> None:
    assert ends.of_jobs(["1"], "Job <1> is not found\n", "") == {"1": LsfJobEnd(EndKind.VANISHED)}
    with pytest.raises(TextError):
        ends.ends("")


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for given_text in (text, shown(("1", "EXIT", text, text)), "JOBID^STAT\n" + text):
        with contextlib.suppress(TextError):
            ends.ends(given_text)
        ends.history("Job <1>, User <u>\nMon Jan  1 00:00:00: Completed <exit>; " + given_text)
