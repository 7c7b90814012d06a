"""What bjobs, jobstat and the planner say of jobs that have not ended."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.rows import PlannedStart
from bftrainer.schedulers.lsf.text import jobs_text, tables
from bftrainer.schedulers.shared.text import TextError
from tests.support.lsf_samples import sample


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


NOW = at("2026-11-23 12:00")


def record(**fields: str) -> dict[str, str]:
    return {
        "JOBID": "7",
        "STAT": "RUN",
        "USER": "u",
        "QUEUE": "batch",
        "NREQ_SLOT": "84",
        "EXEC_HOST": "42*a:42*b",
        "SUBMIT_TIME": "Nov 23 11:00",
        "START_TIME": "Nov 23 11:30",
        "TIME_LEFT": "1:30 L",
        "PEND_REASON": "",
        "JOB_NAME": "main",
        **fields,
    }


def envelope(*rows: dict[str, str]) -> str:
    """As LSF prints it: one value a line, and no blank after a colon."""
    found = {"COMMAND": "bjobs", "JOBS": len(rows), "RECORDS": list(rows)}
    return json.dumps(found, indent=2, separators=(",", ":"))


def test_a_job_with_all_that_we_ask_for() -> None:
    (job,) = jobs_text.jobs(envelope(record()), "", NOW)
    assert (job.id, job.state, job.user, job.queue, job.slots) == ("7", "RUN", "u", "batch", 84)
    assert job.hosts == (("a", 42), ("b", 42))
    assert job.submitted == at("2026-11-23 11:00")
    assert job.left_s == 5400.0
    assert job.rounded_s == 60.0
    assert not job.pending


def test_a_job_of_an_array_has_its_index() -> None:
    (job,) = jobs_text.jobs(envelope(record(JOBINDEX="3")), "", NOW)
    assert job.id == "7[3]"
    (job,) = jobs_text.jobs(envelope(record(JOBINDEX="0")), "", NOW)
    assert job.id == "7"


@pytest.mark.parametrize(
    "said", ["No unfinished job found\n", "No unfinished job found in queue <q>", "No job found"]
)
def test_no_jobs(said: str) -> None:
    assert jobs_text.jobs("", said, NOW) == ()
    assert jobs_text.jobs(envelope(), "", NOW) == ()


def test_an_empty_answer_is_no_answer() -> None:
    for said in ("", "LSF is down. Please wait ..."):
        with pytest.raises(TextError):
            jobs_text.jobs("", said, NOW)


def test_ended_jobs_and_records_of_errors_are_left_out() -> None:
    rows = [record(STAT="DONE"), record(STAT="EXIT"), {"JOBID": "9", "ERROR": "Job <9> is not found"}]
    assert jobs_text.jobs(envelope(*rows), "", NOW) == ()


def test_a_name_that_breaks_the_json_hides_no_other_job() -> None:
    for name in ('say "hi"', 'x", "y', "back\\slash", 'a"}, {"b', 'x","JOBID":"1'):
        text = envelope(record(JOB_NAME="NAME"), record(JOBID="8")).replace('"NAME"', f'"{name}"')
        assert [job.id for job in jobs_text.jobs(text, "", NOW)] == ["7", "8"], name


@pytest.mark.parametrize(
    "user", [r"EXAMPLE\alice", r"EXAMPLE\bob", r"EXAMPLE\nadia", r"EXAMPLE\ursula", "eve@ad.example.org"]
)
def test_a_user_of_a_domain_keeps_its_name_however_the_json_has_its_backslash(user: str) -> None:
    good = envelope(record(USER=user))
    bare = envelope(record(USER="NAME")).replace("NAME", user)
    broken = envelope(record(USER=user, JOB_NAME="TITLE")).replace("TITLE", 'say "hi"')
    for text in (good, bare, broken):
        assert [job.user for job in jobs_text.jobs(text, "", NOW)] == [user]


def test_a_made_up_record_counts_for_nothing() -> None:
    """A name with an end of line could close its record; what it adds has some value twice, or lacks one."""
    made_up = 'x"\n    "JOBID":"1",\n    "STAT":"RUN'
    text = envelope(record(JOB_NAME="NAME"), record(JOBID="8")).replace('"NAME"', f'"{made_up}"')
    assert [job.id for job in jobs_text.jobs(text, "", NOW)] == ["8"]


def test_delimited_rows_whose_last_value_has_the_delimiter() -> None:
    text = "JOBID^STAT^EXEC_HOST^JOB_NAME\n7^RUN^a ^x^y\n8^PEND^-^z\n9^RUN\n"
    jobs = jobs_text.jobs(text, "", NOW)
    assert [(job.id, job.hosts, job.name) for job in jobs] == [("7", (("a", 1),), "x^y"), ("8", (), "z")]
    assert jobs[1].pending


def test_jobs_of_real_commands() -> None:
    (held,) = tables.records(sample("bjobs_json_psusp_olcf.json"))
    assert (held["STAT"], held["EXEC_HOST"], held["QUEUE"]) == ("PSUSP", "", "batch")
    assert values.moment(held["SUBMIT_TIME"], NOW) == values.Moment(at("2026-05-28 12:45"), 60.0)
    (job,) = jobs_text.jobs(sample("bjobs_json_run_10.1.0.15.json"), "", NOW)
    assert (job.id, job.state, job.started) == (
        "5346451",
        "RUN",
        at("2026-09-30 20:32:15"),
    )
    assert job.name == "/eng/tools/cm/bin/BHstart --BHbld_sys lnx86_64_opt"
    first, second = tables.records(sample("bjobs_o_delim.txt"), delimiter="|")
    assert values.left_s(first["TIME_LEFT"]) == 60.0
    assert first["%COMPLETE"] == "22.00% L"
    assert (second["STAT"], second["EXEC_HOST"]) == ("PEND", "")
    wide = tables.columns(sample("bjobs_W_8.3.txt"), "JOBID")[0]
    assert wide["EXEC_HOST"] == "compute013"
    assert values.moment(wide["SUBMIT_TIME"], NOW) is not None


def test_hosts_of_a_real_job_of_one_node() -> None:
    hosts = values.exec_hosts(sample("exec_host_summit_1node.txt"))
    assert hosts == (("batch1", 1), ("a01n10", 42))
    assert values.without_launch(hosts, ("batch*",)) == (("a01n10", 42),)


def test_a_real_jobstat() -> None:
    found = jobs_text.jobstat(sample("jobstat_summit.txt"))
    sums = {"running": 2, "eligible": 3, "blocked": 1, "wanted": 270, "used": 4544, "nodes": 4604}
    assert asdict(jobs_text.totals(found)) == sums
    assert (found.used, found.nodes) == (4544, 4604)
    assert [(row["JobId"], row["Nodes"], row["Remain"]) for row in found.running] == [
        ("331590", "2", "57:06"),
        ("331707", "40", "39:47"),
    ]
    assert found.running[0]["StartTime"] == "04/09 10:06:23"
    assert [row["JobName"] for row in found.eligible] == ["runB", "runC", "runD"]
    assert found.eligible[0]["Priority"] == "501.00"
    (blocked,) = found.blocked
    assert (blocked["Walltime"], blocked["BlockReason"]) == (
        "2:00:00",
        "Job dependency condition not satisfied",
    )


def test_jobstat_with_empty_lists() -> None:
    text = "".join(f"---- {kind} Jobs: 0 ----\n" for kind in ("Running", "Eligible", "Blocked"))
    found = jobs_text.jobstat(text)
    assert (found.running, found.eligible, found.blocked, found.nodes) == ((), (), (), None)
    with pytest.raises(TextError):
        jobs_text.jobstat("---- Running Jobs: 0 ----\n")


def test_real_plans() -> None:
    first, second = jobs_text.plans(sample("lsb.allocation.plan.json"))
    assert first == PlannedStart("172024", 1522351070.0, 1522351670.0, {"host0": 23})
    assert second.job == "172025"


def test_plans_that_cannot_be_read_are_left_out() -> None:
    good = {"JOB_ID": "c@1", "START_TIME": "5", "FINISH_TIME": "9", "ALLOC": [{"HOST": "a", "RSRC": []}, "x"]}
    text = json.dumps({"PLANS": [good, {}, "x", {**good, "START_TIME": None}]})
    assert jobs_text.plans(text) == (PlannedStart("1", 5.0, 9.0, {"a": 0}),)
    for broken in ("", "[]", "{}", '{"PLANS":3}', "[" * 100_000):
        with pytest.raises(TextError):
            jobs_text.plans(broken)


@given(st.text(max_size=200))
def test_any_name_is_read_back(name: str) -> None:
    (job,) = jobs_text.jobs(envelope(record(JOB_NAME=name)), "", NOW)
    assert job.name == values.plain(name)


@given(st.text(max_size=200), st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str, said: str) -> None:
    for given_text in (
        text,
        "{" + text,
        '{"RECORDS":[' + text,
        "JOBID^STAT\n" + text,
        envelope(record()) + text,
    ):
        with contextlib.suppress(TextError):
            jobs_text.jobs(given_text, said, NOW)
        with contextlib.suppress(TextError):
            jobs_text.plans(given_text)
    with contextlib.suppress(TextError):
        jobs_text.jobstat("".join(f"- {k} Jobs: 1 -\n{text}\n" for k in ("Running", "Eligible", "Blocked")))


def test_bjobs_of_jobs_that_are_there_and_not() -> None:
    first, none = sample("bjobs_not_found.txt").split("$ bjobs\n")
    (row, *_) = tables.columns(first, "JOBID")
    assert (row["JOBID"], row["STAT"], row["EXEC_HOST"]) == ("111", "RUN", "hostB")
    assert jobs_text.jobs("", none, NOW) == ()
    missing = first.splitlines()[-1]
    assert missing == "Job <123> is not found"
    with pytest.raises(TextError, match="is not found"):
        jobs_text.jobs("", missing, NOW)


def test_the_long_form_of_a_job_that_waits_without_its_breaks() -> None:
    head, submitted, *rest = tables.unwrapped(sample("bjobs_l_pend_plan_ibm.txt"))
    assert head.endswith("Queue<normal>, Job Priority <500>, Command <x>")
    assert submitted.endswith("23 Task(s),Specified Hosts <host0>;")
    assert " Not specified in job submission: 4607 hosts;" in rest
