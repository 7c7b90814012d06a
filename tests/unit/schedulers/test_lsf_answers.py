"""What bsub, bkill, bqueues and lsid answer."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.lsf import answers
from bftrainer.schedulers.lsf.answers import Killed
from bftrainer.schedulers.lsf.rows import QueueRow
from bftrainer.schedulers.lsf.text import queues_text
from bftrainer.schedulers.shared.text import TextError
from tests.support.lsf_samples import sample


@pytest.mark.parametrize(
    "said",
    [
        "Job <12> is submitted to queue <short>.\n",
        "Job <12> is submitted to default queue <batch>.\n",
        "Cannot connect to LSF. Please wait ...\nJob <12> is submitted to queue <short>.\nhello from esub\n",
    ],
)
def test_a_job_that_was_submitted(said: str) -> None:
    assert answers.submitted(said) == "12"
    assert not answers.refused(said)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("No such queue. Job not submitted.\n", "No such queue"),
        (
            "note of a site\nToo many processors requested. Job not submitted.\n",
            "Too many processors requested",
        ),
        ("### 1 ERROR(S) FOUND.  JOB NOT SUBMITTED. ###\n\n30: no -n here.\n", "30: no -n here."),
    ],
)
def test_a_job_that_was_not(said: str, why: str) -> None:
    assert answers.submitted(said) == ""
    assert answers.refused(said)
    assert answers.why_refused(said) == why


def test_what_says_neither() -> None:
    for said in ("", "LSF is down. Please wait ...\n", "Killed"):
        assert answers.submitted(said) == ""
        assert not answers.refused(said)
    assert answers.unanswered("batch system daemon not responding ... still trying")
    assert answers.why_refused("") == "it says nothing"


def test_what_became_of_jobs_that_were_to_end() -> None:
    said = (
        "Job <1> is being terminated\nJob <2> is being signaled\nJob <3>: Job has already finished\n"
        "Job <4>: No matching job found\nJob <5>: User permission denied\nJob <6[2]> is being terminated\n"
    )
    assert answers.killed(said) == {
        "1": Killed.TOLD,
        "2": Killed.TOLD,
        "3": Killed.GONE,
        "4": Killed.GONE,
        "5": Killed.REFUSED,
        "6[2]": Killed.TOLD,
    }


def test_real_answers() -> None:
    for line in sample("messages.txt").splitlines():
        number, refused = answers.submitted(line), answers.refused(line)
        assert bool(number) == ("is submitted" in line)
        assert refused == line.endswith("Job not submitted.")
        assert answers.unanswered(line) == ("Please wait" in line)
        if "8055" in line:
            assert answers.killed(line) == {"8055": Killed.TOLD}
        if "8056" in line or "44" in line:
            assert set(answers.killed(line).values()) == {Killed.GONE}
    for name, number in (("bsub_interactive_summit.txt", "779469"), ("bsub_jslist_summit.txt", "26238")):
        assert answers.submitted(sample(name)) == number
    rejected = sample("esub_reject_summit.txt")
    assert answers.refused(rejected)
    assert answers.why_refused(rejected).startswith("30: The '-n <slots>' flag is no longer supported.")


def test_queues_in_each_form() -> None:
    both = {"a": QueueRow("a", 50, True, True), "b": QueueRow("b", 43, False, False)}
    head = "QUEUE_NAME      PRIO STATUS          MAX\n"
    assert queues_text.queues(f"{head}a 50 Open:Active -\nb 43 Closed:Inact -\n") == both
    head = "QUEUE_NAME^PRIORITY^STATUS\n"
    assert queues_text.queues(f"{head}a^50^Open:Active\nb^43^Closed:Inact\n") == both
    with pytest.raises(TextError):
        queues_text.queues("QUEUE_NAME PRIO STATUS\nNo such queue\n")


def test_real_queues() -> None:
    for name in ("bqueues_default.txt", "bqueues_o.txt"):
        found = queues_text.queues(sample(name))
        assert found["owners"] == QueueRow("owners", 43, True, True)
        assert set(found) == {"admin", "owners"}
    assert set(queues_text.queues(sample("bqueues_json_olcf.json"))) == {"batch", "test"}


def test_policies_of_a_queue() -> None:
    text = (
        "QUEUE: killable\n  -- low priority\nPARAMETERS/STATISTICS\n RUNLIMIT\n 1440.0 min of any\n\n"
        "SCHEDULING POLICIES:  BACKFILL EXCLUSIVE\nREQUEUE_EXIT_VALUES:  85\n"
    )
    found = queues_text.policies(f"{text}\nQUEUE: b\nPREEMPTION:  PREEMPTIVE[killable]\n")["killable"]
    assert found["SCHEDULING POLICIES"] == "BACKFILL EXCLUSIVE"
    assert found["RUNLIMIT"] == "1440.0 min of any"
    assert queues_text.policies("") == {}


def test_which_lsf_it_is() -> None:
    found = queues_text.identity(
        "IBM Spectrum LSF Standard 10.1.0.13, Apr 15 2022\n\nMy cluster name is summit\n"
        "My management host name is batch1\n"
    )
    assert found == queues_text.LsfIdentity("10.1.0.13", "summit", "batch1")
    found = queues_text.identity(sample("lsid.txt"))
    assert (found.version, found.cluster) == ("10.1.0.15", "test-cluster")
    assert found.master.startswith("ip-")


def test_no_cluster() -> None:
    with pytest.raises(TextError):
        queues_text.identity("ls_gethostname(): LIM is down; try later\n")


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for given_text in (text, "Job <1> is being " + text, "QUEUE_NAME PRIO STATUS\n" + text):
        assert answers.submitted(given_text) == "" or answers.submitted(given_text).isdecimal()
        assert len(answers.why_refused(given_text)) <= answers.MOST_SAID
        answers.killed(given_text)
        queues_text.policies(given_text)
        for read in (queues_text.queues, queues_text.identity):
            with contextlib.suppress(TextError):
                read(given_text)
