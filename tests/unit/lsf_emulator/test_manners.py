"""The emulated LSF's bad manners, each by itself, and the forms of its commands' outputs."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest

from lsf.emulator import sites
from lsf.emulator.core.effects import Signal
from lsf.emulator.core.model import Closed, Host, OnPreempt, Queue, Site, State
from lsf.emulator.manners import Manners
from tests.support.lsf_questions import Desk, moment

NOW = moment("2026 Apr 08 16:57:09")


def desk(hosts: int = 2, *, launch: int = 0, manners: Manners | None = None, **more: object) -> Desk:
    made = replace(sites.small(hosts, launch=launch), **more)  # type: ignore[arg-type]
    return Desk(made, now=NOW, manners=manners or Manners())


def field(found: Desk, name: str, job: int = 101) -> str:
    return found.ask(
        "bjobs", "-a", "-u", "all", "-noheader", "-o", f"{name} delimiter='^'", str(job)
    ).out.rstrip("\n")


def signals(found: Desk) -> list[int]:
    """The signals that real jobs have been sent since last time."""
    effects, found.cluster.state.effects = found.cluster.state.effects, []
    return [effect.number for effect in effects if isinstance(effect, Signal)]


def test_a_launch_node_comes_first_and_is_no_place_for_slots() -> None:
    found = desk(launch=2)
    found.submit("-nnodes", "1", "-W", "5", "sleep", "9")
    assert field(found, "exec_host") == ":".join(["batch1", *["h1"] * 42])
    assert [field(found, name) for name in ("nreq_slot", "nexec_host")] == ["43", "2"]
    said = found.ask("bjobs", "-noheader", "-o", "exec_host delimiter='^'", env={"LSB_SHORT_HOSTLIST": "1"})
    found.lsf.manners = Manners(short_hosts=True)
    assert field(found, "exec_host") == said.out.strip() == "batch1:42*h1"
    assert found.ask("bslots").out.split()[2:] == ["361", "UNLIMITED"], "160 + 160 - 1 + 42"
    assert found.ask("bslots", "-Rselect[CN]").out.split()[2:] == ["42", "UNLIMITED"]
    assert [line.split()[0] for line in found.ask("bhosts", "-R", "select[CN]").out.splitlines()[1:]] == [
        "h1",
        "h2",
    ]
    running = {line.split()[0]: line.split()[5] for line in found.ask("bhosts").out.splitlines()[1:]}
    assert running == {"batch1": "1", "batch2": "0", "h1": "42", "h2": "0"}


def test_times_have_neither_seconds_nor_year_or_both() -> None:
    found = desk()
    found.submit("-n", "1", "-W", "60", "sleep", "9")
    assert [field(found, name) for name in ("submit_time", "finish_time")] == [
        "Apr  8 16:57",
        "Apr  8 17:57 L",
    ]
    found.lsf.manners = Manners(long_times=True)
    assert field(found, "start_time") == "Apr  8 16:57:09 2026"


def test_the_default_queue_is_named_so() -> None:
    found = desk()
    assert found.ask("bsub", "true").out == "Job <101> is submitted to default queue <batch>.\n"
    assert found.ask("bsub", "-q", "batch", "true").out == "Job <102> is submitted to queue <batch>.\n"
    said = found.ask("bsub", "true", env={"BSUB_STDERR": "y"})
    assert (said.out, said.err) == ("", "Job <103> is submitted to default queue <batch>.\n")


@pytest.mark.parametrize("slots", [1, 2])
def test_bkill_repeats_itself_or_kills_parallel_jobs_at_once(slots: int) -> None:
    found = desk(terminate_interval_s=10.0)
    found.submit("-n", str(slots), "sleep", "9")
    found.ask("bkill", "101")
    assert signals(found) == [signal.SIGINT]
    found.now += 10
    found.ask("bjobs")
    assert signals(found) == [signal.SIGTERM]
    found.ask("bkill", "101")
    assert signals(found) == [], "the sequence does not begin anew"
    found.now += 10
    found.ask("bjobs")
    assert signals(found) == [signal.SIGKILL]
    hard = desk(kill_parallel=True)
    hard.submit("-n", str(slots), "sleep", "9")
    hard.ask("bkill", "101")
    assert signals(hard) == [signal.SIGINT if slots == 1 else signal.SIGKILL]


def test_a_job_counts_as_running_for_a_while_after_its_end() -> None:
    found = desk(report_s=3.0)
    job = found.submit("-nnodes", "1", "sleep", "9")
    found.ask("bkill", "101")
    found.cluster.exited(job, 0, 130, found.now)
    assert field(found, "stat") == "RUN"
    found.now += 3
    assert [field(found, name) for name in ("stat", "exit_code")] == ["EXIT", "130"]


def test_a_run_limit_is_sigusr2_and_much_later_sigkill() -> None:
    found = desk()
    job = found.submit("-n", "1", "-W", "2", "sleep", "999")
    found.now += 120
    found.ask("bjobs")
    assert signals(found) == [signal.SIGUSR2]
    found.now += 599
    found.ask("bjobs")
    assert signals(found) == []
    found.now += 1
    found.ask("bjobs")
    assert signals(found) == [signal.SIGKILL]
    found.cluster.exited(job, 0, 137, found.now)
    assert field(found, "exit_reason") == "TERM_RUNLIMIT: job killed after reaching LSF run time limit"


def test_the_warning_comes_before_the_limit() -> None:
    found = desk()
    found.submit("-n", "1", "-W", "5", "-wa", "URG", "-wt", "2", "sleep", "999")
    found.now += 179
    found.ask("bjobs")
    assert signals(found) == []
    found.now += 1
    found.ask("bjobs")
    assert signals(found) == [signal.SIGURG]


def test_jobs_are_missing_for_one_query() -> None:
    found = desk(manners=Manners(missing=1))
    found.submit("-n", "1", "sleep", "9")
    assert found.ask("bjobs", "101").err == "Job <101> is not found\n"
    assert field(found, "stat") == "RUN"


def test_lsf_is_down_for_some_commands_or_answers_never() -> None:
    found = desk(manners=Manners(down=2))
    for _ in range(2):
        said = found.ask("bhosts")
        assert (said.out, said.err, said.code, said.retry_s) == (
            "",
            "LSF is down. Please wait ...\n",
            255,
            1.0,
        )
    assert found.ask("bhosts").code == 0
    found.lsf.manners = Manners(hang=True)
    assert found.ask("bsub", "true").err == "LSF is down. Please wait ...\n"
    assert not found.cluster.state.jobs


def test_windows_are_stale() -> None:
    found = desk(manners=Manners(stale_s=30.0))
    whole = found.ask("bslots").out
    found.submit("-nnodes", "2", "-W", "5", "sleep", "9")
    found.now += 29
    assert found.ask("bslots").out == whole, "though nothing is free any more"
    found.now += 1
    assert found.ask("bslots").out == "No backfill window exists at this time\n"


def test_windows_that_no_filter_finds_and_none_at_all() -> None:
    found = desk()
    found.submit("-nnodes", "1", "-W", "10", "sleep", "9")
    found.submit("-nnodes", "2", "-W", "10", "sleep", "9")
    found.now += 65
    assert found.ask("bslots").out == "SLOTS          RUNTIME\n42             8 minutes 55 seconds\n"
    said = found.ask("bslots", "-n43")
    assert said.code == 255 and said.out.startswith("No backfill window meets")
    assert found.ask("bslots", "-W", "9").code == 255 and found.ask("bslots", "-W8").code == 0
    host = dict(
        zip(
            ("status", "njobs", "run", "rsv"),
            found.ask("bhosts", "-noheader", "-o", "status njobs run rsv", "h2").out.split(),
            strict=True,
        )
    )
    assert host == {"status": "closed_Full", "njobs": "42", "run": "0", "rsv": "42"}, "idle, yet not ok"
    found.lsf.manners = Manners(no_windows=True)
    assert found.ask("bslots").out == "No backfill window exists at this time\n"


def test_a_submission_loses_the_race_for_its_host() -> None:
    found = desk(manners=Manners(lost_races=1, race_s=60.0))
    found.submit("-q", "killable", "-n", "42", "-m", "h2", "-R", "span[ptile=42]", "sleep", "9")
    assert (field(found, "exec_host"), field(found, "stat", 102)) == ("h2:" * 41 + "h2", "PEND")
    found.now += 60
    assert field(found, "stat", 102) == "RUN"


def test_a_job_lands_elsewhere() -> None:
    found = desk(manners=Manners(elsewhere=True))
    found.submit("-n", "1", "-m", "h2", "sleep", "9")
    assert field(found, "exec_host") == "h1"


def test_exit_codes_say_nothing_or_too_much() -> None:
    found = desk(manners=Manners(bjobs_code=255, no_exit_codes=True))
    job = found.submit("-n", "1", "false")
    assert found.ask("bjobs").code == 255 and "RUN" in found.ask("bjobs").out
    found.cluster.exited(job, 0, 1, found.now)
    assert field(found, "exit_code") == "-"
    found.lsf.manners = Manners(consistent_exit=True)
    assert (found.ask("bjobs").err, found.ask("bjobs").code) == ("No unfinished job found\n", 255)
    assert found.ask("bjobs", "-q", "killable", "-p").err == "No pending job found in queue <killable>\n"


@pytest.mark.parametrize("how", OnPreempt)
def test_a_main_job_takes_the_hosts_of_a_pilot(how: OnPreempt) -> None:
    found = Desk(sites.small(1, preempt=how), now=NOW)
    pilot = found.submit("-q", "killable", "-nnodes", "1", "-W", "60", "sleep", "9")
    found.submit("-nnodes", "1", "-W", "5", "sleep", "9")
    if how is OnPreempt.SUSPEND:
        assert [job.state for job in found.cluster.state.jobs.values()] == [State.SSUSP, State.RUN]
        assert signals(found) == [signal.SIGTSTP]
        numbers = found.ask("bhosts", "-noheader", "-o", "max njobs run ssusp").out.split()
        assert numbers == ["42", "84", "42", "42"]
        found.cluster.exited(found.cluster.state.jobs[102], 0, 0, found.now)
        assert (signals(found), pilot.state) == ([signal.SIGCONT], State.RUN)
        return
    assert [job.state for job in found.cluster.state.jobs.values()] == [State.RUN, State.PEND]
    assert signals(found) == [signal.SIGINT]
    found.cluster.exited(pilot, 0, 130, found.now)
    ended = State.PEND if how is OnPreempt.REQUEUE else State.EXIT
    assert [job.state for job in found.cluster.state.jobs.values()] == [ended, State.RUN]


def test_killable_jobs_are_safe_for_a_while() -> None:
    queues = (
        Queue(name="batch", priority=50, preempts=("killable",)),
        Queue(name="killable", priority=10, guaranteed_s=100.0, on_preempt=OnPreempt.KILL, most_hosts=1),
    )
    found = Desk(Site(hosts=sites.small(2).hosts, queues=queues, default_queue="batch"), now=NOW)
    assert found.ask("bsub", "-q", "killable", "-nnodes", "2", "true").code == 255, (
        "it admits small jobs only"
    )
    found.submit("-q", "killable", "-nnodes", "1", "-W", "60", "sleep", "9")
    found.submit("-nnodes", "2", "-W", "5", "sleep", "9")
    assert found.ask("bslots").out.splitlines()[1].split(maxsplit=1) == ["42", "1 minutes 40 seconds"]
    found.now += 99
    found.ask("bjobs")
    assert signals(found) == []
    found.now += 1
    found.ask("bjobs")
    assert signals(found) == [signal.SIGINT]


def test_hosts_that_take_no_jobs() -> None:
    found = desk(3)
    found.cluster.set_host("h1", Closed.ADMIN, NOW)
    found.cluster.set_host("h2", Closed.UNAVAILABLE, NOW)
    found.submit("-x", "-n", "1", "sleep", "9")
    shown = [line.split()[:2] for line in found.ask("bhosts", "-w").out.splitlines()[1:]]
    assert shown == [["h1", "closed_Adm"], ["h2", "unavail"], ["h3", "closed_Excl"]]
    assert (
        "h3                 closed          -     42      1      1      0      0      0\n"
        in found.ask("bhosts").out
    )


def test_a_held_job_waits_and_a_stopped_one_resumes_in_two_steps() -> None:
    found = desk(cycle_s=5.0)
    found.submit("-H", "-n", "1", "sleep", "9")
    found.submit("-n", "1", "sleep", "9")
    found.now += 5
    assert [field(found, "stat", n) for n in (101, 102)] == ["PSUSP", "RUN"]
    assert found.ask("bstop", "102").out == "Job <102> is being stopped\n"
    assert field(found, "stat", 102) == "USUSP"
    found.ask("bresume", "101", "102")
    assert [field(found, "stat", n) for n in (101, 102)] == ["PEND", "SSUSP"]
    found.now += 5
    assert [field(found, "stat", n) for n in (101, 102)] == ["RUN", "RUN"]


def test_easy_and_expert_mode_exclude_each_other() -> None:
    found = desk(4, launch=1)
    hosts = " && ".join(f"hname!='h{n}'" for n in (1, 2))
    expert = f"1*{{select[LN]}}+2*42*{{select[CN && {hosts}] span[ptile=42]}}"
    assert found.ask("bsub", "-csm", "y", "-nnodes", "1", "true").err.endswith(" Job not submitted.\n")
    assert found.ask("bsub", "-nnodes", "1", "-R", "select[CN]", "true").code == 255
    found.submit("-csm", "y", "-R", expert, "sleep", "9")
    found.lsf.manners = Manners(short_hosts=True)
    assert field(found, "exec_host") == "batch1:42*h3:42*h4"


def test_refusals_leave_by_standard_error_with_one_code() -> None:
    found = desk()
    many = " ".join(f"h{n}" for n in range(600))
    for words in (
        ["-q", "nix", "true"],
        ["-n", "85", "true"],
        ["-m", "nix", "true"],
        ["-m", many, "true"],
        ["-R", "span[ptile=4", "true"],
        ["-W", "2000", "true"],
        ["-Is", "sh"],
        [],
    ):
        said = found.ask("bsub", *words)
        assert (said.out, said.code) == ("", 255) and said.err.endswith(". Job not submitted.\n"), words
    assert found.ask("bsub", "-%", "true").err == "bsub: illegal option -- %\n"


def test_scripts_bring_their_options() -> None:
    found = desk()
    script = "#!/bin/bash\n#BSUB -J 'my job' -W 0:30\n#BSUB -nnodes 2  # both\n#BSUB -q killable\nsleep 9\n"
    found.submit("-q", "batch", script=script)
    assert [field(found, name) for name in ("job_name", "queue", "runtimelimit", "nalloc_slot")] == [
        *("my job", "batch", "30.0", "84")
    ]
    shown = json.loads(found.ask("bjobs", "-json", "-o", "jobid exit_code").out)
    assert shown == {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [{"JOBID": "101", "EXIT_CODE": ""}]}
    assert found.ask("bjobs", "-json", "-noheader", "-o", "jobid").code == 255


def test_users_change_their_own_jobs_only_and_without_an_id_the_latest() -> None:
    found = desk()
    for user, uid in (("a", 1), ("b", 2), ("a", 1)):
        found.submit("-n", "1", "sleep", "9", user=user, uid=uid)
    assert found.ask("bkill", "102", user="a", uid=1).err == "Job <102>: User permission denied\n"
    assert found.ask("bkill", "-q", "batch", user="a", uid=1).out == "Job <103> is being terminated\n"
    said = found.ask("bkill", "-s", "KILL", "0", user="a", uid=1)
    assert said.out == "Job <101> is being terminated\nJob <103> is being terminated\n"
    assert (
        found.ask("bjobs", "-w", user="b", uid=2)
        .out.splitlines()[1]
        .startswith("102     b       RUN   batch")
    )


def test_jobs_of_a_user_in_the_forms_of_bhist_and_jobstat() -> None:
    found = Desk(Site(hosts=(Host(name="h1"),), queues=(Queue(name="q"),), default_queue="q"), now=NOW)
    found.submit("-nnodes", "1", "-W", "5", "-J", "one", "sleep", "9")
    found.submit("-nnodes", "1", "-W", "90", "-J", "two", "sleep", "9")
    found.now += 61
    lines = found.ask("bhist").out.splitlines()
    assert lines[2].split() == ["101", "root", "one", *["0", "0", "61", "0", "0", "0", "61"]]
    lines = found.ask("jobstat").out.splitlines()
    assert lines[0].strip("-") == " Running Jobs: 1 (1 of 1 nodes, 100.00%) " and len(lines[0]) == 100
    assert lines[2] == "101      root       default          1     3:59       04/08 16:57:09  one"
    assert lines[5] == "102      root       default          1     1:30:00    04/08 16:57:09  501.00   two"


def test_what_bhosts_has_printed_is_forgotten_with_every_change() -> None:
    found = desk(2, cycle_s=5.0)

    def shown() -> list[list[str]]:
        lines = found.ask("bhosts", "-noheader", "-o", "status run ssusp ususp rsv").out.splitlines()
        return [line.split() for line in lines]

    free = [["ok", "0", "0", "0", "0"]] * 2
    assert shown() == free
    found.submit("-nnodes", "1", "-W", "5", "sleep", "9")
    found.submit("-nnodes", "2", "-W", "5", "sleep", "9")
    assert shown() == free, "they are dispatched later"
    found.now += 5
    assert shown() == [["closed_Full", "42", "0", "0", "0"], ["closed_Full", "0", "0", "0", "42"]]
    found.ask("bstop", "101")
    assert shown()[0] == ["closed_Full", "0", "0", "42", "0"]
    found.ask("bresume", "101")
    assert shown()[0] == ["closed_Full", "0", "42", "0", "0"]
    found.cluster.set_host("h2", Closed.ADMIN, found.now)
    assert shown()[1][0] == "closed_Adm"
