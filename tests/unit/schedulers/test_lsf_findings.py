"""What the check of LSF says of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bftrainer.model.finding import Finding, Level
from bftrainer.schedulers.lsf.check import findings
from bftrainer.schedulers.lsf.rows import BackfillWindow, HostRow, LsfJobRow, QueueRow
from bftrainer.schedulers.lsf.text.queues_text import LsfIdentity

NOW = 1e9
LAUNCH = ("batch*",)
HOSTS = {
    "a": HostRow("a", "closed_Full", 42, 42),
    "b": HostRow("b", "ok", 42, 0),
    "batch1": HostRow("batch1", "ok", 8, 1),
}
JOB = LsfJobRow("7", "RUN", "u", "batch", 43, (("batch1", 1), ("a", 42)), NOW - 9, NOW - 5)


def bad(found: Sequence[Finding]) -> list[str]:
    return [one.found for one in found if one.level is not Level.OK]


def test_a_site_as_we_expect_it() -> None:
    assert bad([findings.version_finding(LsfIdentity("10.1.0.13", "summit", "m"))]) == []
    assert bad(findings.host_findings(HOSTS, LAUNCH)) == []
    assert bad(findings.job_findings([JOB], HOSTS, LAUNCH, 1, NOW)) == []
    assert bad(findings.job_findings([], {"b": HOSTS["b"]}, LAUNCH, 1, NOW)) == [], "a machine without jobs"
    assert bad(findings.window_findings((BackfillWindow(42, 60.0),), HOSTS)) == []
    queues = {"low": QueueRow("low", 1, True, True), "high": QueueRow("high", 9, True, True)}
    assert bad(findings.queue_findings(queues, "low")) == []
    for said in ("PREEMPTABLE[high]", "PREEMPTIVE[low]", "PREEMPTIVE BACKFILL"):
        told = {"low": {}, "high": {}, "low" if "ABLE" in said else "high": {"PREEMPTION": said}}
        assert bad(findings.policy_findings(told, "low", "preempt")) == []
    assert bad(findings.policy_findings({"low": {"SCHEDULING POLICIES": "BACKFILL"}}, "low", "window")) == []


def test_what_was_understood_is_said() -> None:
    (said,) = findings.host_findings(HOSTS, LAUNCH)
    assert said.found.startswith("2 hosts (1 closed_Full, 1 ok); slots: 2 with 42; 1 have no job")
    assert said.found.endswith("1 launch hosts left out")
    assert (
        "1 jobs (1 RUN) of 1 users; times with seconds"
        in findings.job_findings([JOB], HOSTS, LAUNCH, 1, NOW)[0].found
    )
    (told,) = findings.window_findings((BackfillWindow(42, float("inf")),), HOSTS, "bslots -l")
    assert told.check == "lsf bslots -l"
    assert "42 slots for ever" in told.found


def test_an_old_lsf() -> None:
    assert bad([findings.version_finding(LsfIdentity("9.1.2", "c", ""))])
    assert bad([findings.version_finding(LsfIdentity("", "c", ""))])


def test_hosts_that_are_not_as_we_assume() -> None:
    def told(row: HostRow) -> str:
        return " ".join(bad(findings.host_findings({**HOSTS, row.name: row}, LAUNCH)))

    assert "without a reason" in told(HostRow("c", "closed", 42, 0))
    assert "unknown statuses: closed_New" in told(HostRow("c", "closed_New", 42, 0))
    assert "differ in their slots" in told(HostRow("c", "ok", 8, 0))
    assert "1 hosts have no limit of slots" in told(HostRow("c", "ok", 0, 0, limited=False))
    management = HostRow("c", "closed_Full", 0, 0)
    assert told(management).count("\n") == told(HostRow("c", "ok", 42, 0)).count("\n"), "nothing odd about it"


def test_jobs_that_do_not_agree_with_hosts() -> None:
    def told(*jobs: LsfJobRow, launch_slots: int = 1) -> str:
        return " ".join(bad(findings.job_findings(jobs, HOSTS, LAUNCH, launch_slots, NOW)))

    assert "hosts that bhosts does not show: login9" in told(replace(JOB, hosts=(("login9", 1), ("a", 42))))
    assert "on 1 of 3 hosts bhosts counts other slots in use" in told()
    assert "ask for 1 slots more than they have on hosts that compute, and lsf_launch_slots is 0" in (
        told(JOB, launch_slots=0)
    )
    assert "ask for 0 slots more" in told(replace(JOB, slots=42))
    assert "in the future" in told(replace(JOB, started=NOW + 3600))


def test_queues_that_would_let_main_jobs_wait() -> None:
    queues = {"low": QueueRow("low", 9, False, True), "high": QueueRow("high", 9, True, True)}
    told = " ".join(bad(findings.queue_findings(queues, "low")))
    assert "not Open:Active" in told
    assert "no lower priority than high" in told
    assert "no queue 'x'" in " ".join(bad(findings.queue_findings(queues, "x")))
    assert "lsf_queue is empty" in " ".join(bad(findings.queue_findings(queues, "")))
    others = {"low": {}, "high": {"PREEMPTION": "PREEMPTIVE[lower]"}}
    assert bad(findings.policy_findings(others, "low", "window"))
    assert bad(findings.policy_findings({"low": {}, "high": {}}, "low", "preempt"))
    assert "says nothing of queue low" in " ".join(bad(findings.policy_findings({}, "low", "preempt")))


def test_no_windows() -> None:
    assert bad(findings.window_findings((), HOSTS))
