"""How the scheduler runs Slurm's commands, and what it makes of those that fail: stand-ins on PATH for what
a real Slurm does not do on demand."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.errors import SchedulerError, UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.shared import command as shared
from bftrainer.schedulers.slurm import command as slurm_command
from bftrainer.schedulers.slurm import scheduler as slurm
from bftrainer.schedulers.slurm.command import environment
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from tests.support.slurm_commands import ANSWERS, DOWN, SCONTROL, SQUEUE, Commands
from tests.support.slurm_samples import MARK, PILOT_JOB

HUNG = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
T, U, SIX = "1" * 32, "2" * 32, "6" * 32
PILOT = Pilot(tag=T, node="n9")
SITE = replace(PILOT_JOB, exec_prefix=("become", "{user}"))
BECOME = """\
if [ "$1" = eve ]; then echo 'sudo: a password is required' >&2; exit 1; fi
shift; exec "$@"
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "own_name", lambda: "root")
    return Commands(tmp_path)


def fails(action: Callable[[], object], kind: type[SchedulerError] = SchedulerError) -> str:
    with pytest.raises(SchedulerError) as caught:
        asyncio.run(action())  # type: ignore[arg-type]
    assert type(caught.value) is kind
    return str(caught.value)


def test_a_poll_takes_three_commands_whose_answers_can_be_read(commands: Commands) -> None:
    scheduler = commands.scheduler(SQUEUE_USERS="eve", SBATCH_WAIT="1", SLURM_CONF="/c", SLURM_CLUSTERS="x")
    snapshot = asyncio.run(scheduler.poll())
    assert snapshot.idle == {"n6", "n7", "n8", "n9", "n10", "n11", "n12"}
    asyncio.run(scheduler.poll())
    first, second, *calls = commands.calls()
    assert (first, second) == ("scontrol --local show config", "scontrol --local show federation"), "once"
    queries = ["scontrol", "squeue", "squeue"]  # the second squeue in its other format, as nodes have GPUs
    assert [call.split()[0] for call in calls] == queries * 2
    assert all("--local" in call.split() for call in calls), "none shows the clusters of a federation"
    shown, queue = calls[:2]
    assert "-a" in shown.split() and "-a" in queue.split(), "hidden partitions have main jobs as well"
    said = (commands.folder / "squeue.env").read_text().splitlines()
    assert {"LC_ALL=C", "SLURM_TIME_FORMAT=%s", "SLURM_CONF=/c"} <= set(said)
    assert not any(line.startswith(("SQUEUE_USERS", "SBATCH_", "SLURM_CLUSTERS")) for line in said)
    mark = next(line.split("\x1f")[1] for line in said if line.startswith("SQUEUE_FORMAT2="))
    assert len(mark) == 16 and mark not in " ".join(calls), "other users can read command lines"


def test_a_pilot_of_a_federation_is_offered_to_our_own_cluster_alone(commands: Commands) -> None:
    federation = "Federation: big\nSelf:       alpha:10.0.0.2:6817 ID:1 FedState:ACTIVE Features:\n"
    asked = f'case "$*" in *federation) printf "{federation}"; exit;; esac'
    commands.set("scontrol", f"{ANSWERS}{asked}\ncat > /dev/null; cat {SCONTROL}")
    commands.set("sbatch", "echo '4711;alpha'")
    scheduler = commands.scheduler()
    asyncio.run(scheduler.poll())
    pilot = replace(PILOT, node="n6")
    asyncio.run(scheduler.submit(pilot, "secret"))
    assert "--clusters=alpha" in commands.calls()[-1].split()
    assert "--clusters" not in " ".join(commands.scheduler().request(pilot, "secret").words)


def test_a_squeue_that_fails_in_its_long_format_is_told_and_the_poll_goes_on(commands: Commands) -> None:
    body = (commands.folder / "squeue").read_text()
    commands.set("squeue", f'test -z "$SQUEUE_FORMAT2" || {{ echo no such field >&2; exit 1; }}\n{body}')
    snapshot = asyncio.run(commands.scheduler().poll())
    assert snapshot.idle == {"n6", "n7", "n8", "n9", "n10", "n11", "n12"}
    assert "(no such field)" in snapshot.unseen and "--gpus" in snapshot.unseen


def test_a_poll_says_how_long_slurm_worked_for_it_without_our_own_reading(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret = slurm.slurm_view.interpret

    def slow(*args: object, **given: object) -> object:
        time.sleep(0.1)
        return interpret(*args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(slurm.slurm_view, "interpret", slow)
    began = time.monotonic()
    asked_s = asyncio.run(commands.scheduler().poll()).asked_s
    assert asked_s is not None and 0 < asked_s <= time.monotonic() - began - 0.1


def test_what_the_pilot_inherits_is_the_daemons_environment(commands: Commands) -> None:
    asyncio.run(commands.scheduler(LANG="de", SLURM_JOB_ID="7").submit(PILOT, "secret", 600.0))
    said = (commands.folder / "sbatch.env").read_text().splitlines()
    assert "LANG=de" in said
    assert not any(line.startswith(("SLURM_", "LC_ALL")) for line in said)
    assert "secret" in (commands.folder / "script").read_text()
    assert "secret" not in "".join(commands.calls())


def test_whatever_becomes_the_user_the_pilot_does_not_inherit_what_our_parsers_want(
    commands: Commands,
) -> None:
    commands.set("become", BECOME)

    async def scenario() -> None:
        scheduler = commands.scheduler(SITE, LANG="de", LC_ALL="de_DE")
        await scheduler.submit(replace(PILOT, user="ann"), "secret", 600.0)

    asyncio.run(scenario())
    said = (commands.folder / "sbatch.env").read_text().splitlines()
    assert {"LANG=de", "LC_ALL=de_DE"} <= set(said)
    assert not any(line.startswith(("SLURM_", "TERM=dumb")) for line in said)


def test_agents_that_cannot_reach_the_daemon_are_warned_of_once(
    commands: Commands, caplog: pytest.LogCaptureFixture
) -> None:
    async def idle(daemon: str, hosts: str) -> int:
        shown = SCONTROL.read_text().replace("NodeAddr=127.0.0.1 NodeHostName=localhost", hosts)
        (commands.folder / "shown").write_text(shown)
        commands.set("scontrol", f"{ANSWERS}cat > /dev/null; cat shown")
        scheduler = commands.scheduler(replace(PILOT_JOB, daemon=daemon))
        await scheduler.poll()
        return len((await scheduler.poll()).idle)

    far, near = "NodeAddr=n NodeHostName=n", "NodeAddr=127.0.0.1 NodeHostName=localhost"
    for daemon, hosts in (("10.0.0.1:4000", far), ("127.0.0.1:4000", near), ("localhost:4000", near)):
        assert asyncio.run(idle(daemon, hosts)) == 7
    assert not caplog.messages
    assert asyncio.run(idle("127.0.0.1:4000", far)) == 1  # where a pilot of ours already runs
    assert caplog.messages == ["agents on the nodes cannot reach 127.0.0.1:4000: set address (or listen)"]


def test_an_empty_answer_is_no_empty_machine(commands: Commands) -> None:
    commands.set("scontrol", f"echo '{DOWN}' >&2")
    said = fails(commands.scheduler().poll)
    assert said.startswith("slurmctld is down: slurm_load_partitions: Unable to contact")
    commands.set("scontrol", f"{ANSWERS}true")
    assert "no nodes and no partitions" in fails(commands.scheduler().poll)
    commands.set("scontrol", "true")
    assert "scontrol showed no configuration" in fails(commands.scheduler().poll)


@pytest.mark.parametrize(
    ("private", "level", "hidden"),
    [
        ("none", "None", ""),
        ("accounts,events,users", "None", ""),
        ("jobs", "None", "jobs"),
        ("accounts,jobs,usage", "", "jobs"),
        ("all", "None", "jobs,nodes,partitions"),
        ("Nodes", "None", "nodes"),
        ("jobs", "Operator", ""),
        ("jobs,nodes", "Administrator", ""),
    ],
)
def test_who_cannot_see_everybodys_jobs_holds_nothing(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, private: str, level: str, hidden: str
) -> None:
    monkeypatch.setattr(slurm.os, "geteuid", lambda: 1000)
    commands.configure(private)
    commands.set("sacctmgr", f"echo {level}")
    if not hidden:
        assert asyncio.run(commands.scheduler().poll()).idle
        return
    said = fails(commands.scheduler().poll)
    assert said.startswith(f"PrivateData={hidden} hides ")
    assert said.endswith("sacctmgr modify user root set adminlevel=operator")
    assert [call.split()[0] for call in commands.calls()] == ["scontrol", "sacctmgr"], "nothing else is asked"


@pytest.mark.parametrize(
    ("uid", "slurm_user"), [(0, "slurm(64030)"), (64030, "slurm(64030)"), (7, "a(b)(7)")]
)
def test_nothing_is_hidden_from_root_and_slurms_own_user(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, uid: int, slurm_user: str
) -> None:
    monkeypatch.setattr(slurm.os, "geteuid", lambda: uid)
    commands.configure("jobs,nodes", slurm_user)
    assert asyncio.run(commands.scheduler().poll()).idle


def test_without_accounting_nobody_is_an_operator(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.os, "geteuid", lambda: 1000)
    commands.configure("jobs")
    commands.set("sacctmgr", "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1")
    assert "supported accounting_storage plugin" in fails(commands.scheduler().poll)
    monkeypatch.setenv("PATH", str(commands.folder))
    (commands.folder / "sacctmgr").unlink()
    said = fails(commands.scheduler().poll)
    assert "adminlevel=operator" in said and "cannot run sacctmgr" in said


def test_what_is_hidden_is_asked_again_when_slurm_comes_back(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.os, "geteuid", lambda: 1000)
    commands.set("sacctmgr", "echo None")
    scheduler = commands.scheduler()
    asyncio.run(scheduler.poll())
    commands.configure("jobs")
    assert asyncio.run(scheduler.poll()).idle, "slurmctld has not been away"
    commands.set("squeue", "exit 1")
    assert fails(scheduler.poll) == "squeue failed"
    commands.show(SQUEUE.read_text())
    for _ in range(2):
        assert "PrivateData=jobs" in fails(scheduler.poll)
    commands.set("sacctmgr", "echo Operator")
    assert asyncio.run(scheduler.poll()).idle


def test_a_queue_that_fails_is_no_empty_queue(commands: Commands) -> None:
    commands.set(
        "squeue", "echo 'slurm_load_jobs error: Socket timed out on send/recv operation' >&2; exit 1"
    )
    assert fails(commands.scheduler().poll).startswith("slurmctld does not answer")


def test_scontrol_is_not_left_to_ask_three_times(commands: Commands) -> None:
    commands.set("scontrol", f"echo '{DOWN}' >&2; exec sleep 4")
    begin = time.monotonic()
    assert "slurmctld is down" in fails(commands.scheduler().poll)
    assert time.monotonic() - begin < 4


def test_a_command_that_hangs_is_killed(commands: Commands) -> None:
    commands.set("squeue", "echo $$ > pid; exec sleep 600")
    scheduler = commands.scheduler()
    scheduler._timeout_s = 3.0
    assert fails(scheduler.poll) == "squeue took more than 3 s"
    pid = int((commands.folder / "pid").read_text())
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


def test_a_submission_whose_answer_is_lost_is_unsure(commands: Commands) -> None:
    commands.set("sbatch", f"echo '{HUNG}' >&2; exit 1")
    assert "Socket timed out" in fails(lambda: commands.scheduler().submit(PILOT, "s"), UnsureError)
    commands.set("sbatch", "echo what")
    assert "no job number" in fails(lambda: commands.scheduler().submit(PILOT, "s"), UnsureError)
    commands.set("sbatch", "exec sleep 600")
    scheduler = commands.scheduler()
    scheduler._timeout_s = 0.5
    assert "took more than" in fails(lambda: scheduler.submit(PILOT, "s"), UnsureError)


def test_a_submission_that_is_refused_says_so_in_slurms_words(commands: Commands) -> None:
    commands.set(
        "sbatch",
        "echo 'sbatch: error: invalid partition specified: nope' >&2;"
        "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1",
    )
    said = fails(lambda: commands.scheduler().submit(PILOT, "s"))
    assert (
        said == "sbatch failed: sbatch: error: Batch job submission failed: Invalid partition name specified"
    )


def test_no_slurm_here(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    (commands.folder / "scontrol").unlink()
    monkeypatch.setenv("PATH", str(commands.folder))
    assert fails(commands.scheduler().poll) == "cannot run scontrol: No such file or directory"


def test_several_pilots_are_cancelled_by_number_in_one_command(commands: Commands) -> None:
    async def scenario() -> None:
        scheduler = commands.scheduler()
        await scheduler.submit(PILOT, "s")
        await scheduler.cancel([PILOT, Pilot(tag=U, node="n1", job="12")])

    asyncio.run(scenario())
    killed = "scancel --batch --signal=KILL 12 4711"
    assert commands.calls()[-2:] == [killed, "scancel 12 4711"], "nothing waits for Slurm's KillWait"


def test_no_pilot_waits_for_a_question_about_another(commands: Commands) -> None:
    """Nor does it stay if that question has no answer."""
    commands.set("squeue", "until grep -q 'scancel 12' calls; do /bin/sleep 0.01; done; exit 1")
    said = fails(lambda: commands.scheduler().cancel([PILOT, Pilot(tag=U, node="n1", job="12")]))
    assert said == "squeue failed"
    assert [call for call in commands.calls() if call.startswith("scancel 1")] == ["scancel 12"]


def test_a_user_as_whom_nothing_can_be_run_keeps_nobody_elses_pilots(commands: Commands) -> None:
    commands.set("become", BECOME)
    pilots = [
        Pilot(tag=f"{i}" * 32, node=f"n{i}", user=user, job=f"{i}")
        for i, user in enumerate(["ann", "eve", "-x", "bob", "ann"])
    ]
    said = fails(lambda: commands.scheduler(SITE).cancel(pilots))
    assert said == "scancel as eve failed: sudo: a password is required; '-x' is no name of a user"
    done = [call for call in commands.calls() if call.startswith("scancel") and "--signal" not in call]
    assert sorted(done) == ["scancel 0 4", "scancel 3"]


def test_a_pilot_of_unknown_number_is_looked_up_and_all_of_its_jobs_go(commands: Commands) -> None:
    commands.show(SQUEUE.read_text().replace("a" * 32, SIX))

    async def scenario() -> None:
        scheduler = commands.scheduler()
        await scheduler.cancel([Pilot(tag=SIX, node="n6")])
        await scheduler.cancel([Pilot(tag=T, node="n6")])
        await scheduler.cancel([Pilot(tag=SIX, node="n6", job="7")])

    asyncio.run(scenario())
    assert [call for call in commands.calls() if call.startswith("scancel 2")] == ["scancel 2 7"] * 2


def test_one_command_asks_why_pilots_failed_even_those_that_no_look_has_found(commands: Commands) -> None:
    failed = "JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=127:0 BatchFlag=1"
    other = "JobState=PREEMPTED Reason=None ExitCode=0:15"
    shown = f"scontrol: JobId=4711 JobName=x {failed}\nscontrol: JobId=12 JobName=y {other}"
    shown += f" Comment=a user\nJobId=14 JobName=z {failed}\nscontrol: JobId=14 JobName=z {other}"
    commands.set("scontrol", f"cat > asked; printf '{shown}\\nscontrol: '; echo 'Invalid job id' >&2; exit 1")
    listed, gone, posed = (
        Pilot(tag=t, node=n, job=j) for t, n, j in (["u", "n1", "12"], ["v", "n2", "13"], ["w", "n3", "14"])
    )

    async def scenario() -> None:
        scheduler = commands.scheduler()
        assert await scheduler.failures([PILOT]) == {}
        await scheduler.submit(PILOT, "s")
        why = await scheduler.failures([PILOT, listed, gone, posed])
        assert why == {PILOT: "its job failed: there is no /opt/py thon/bin/python on n9; see pilot_python"}

    asyncio.run(scenario())
    assert [call for call in commands.calls() if call.startswith("scontrol")] == ["scontrol --local -a -o"]
    asked = (commands.folder / "asked").read_text()
    assert asked == "show job 4711\nshow job 12\nshow job 13\nshow job 14\n"


def test_slurm_says_which_pilots_it_has_preempted_and_no_name_or_comment_does(commands: Commands) -> None:
    ends = {
        "12": "JobName=y JobState=PREEMPTED PreemptTime=2026-01-01T00:00:00 Comment=x",
        "13": "JobName=y JobState=RUNNING PreemptTime=2026-01-01T00:00:00",  # GraceTime
        "14": "JobName=y JobState=CANCELLED PreemptTime=None",
        "15": "JobName=y PreemptTime=1 JobState=CANCELLED PreemptTime=None",
        "16": "JobName=y JobState=CANCELLED PreemptTime=None Comment=x PreemptTime=1",
    }
    shown = "\\n".join(f"JobId={job} {end}" for job, end in ends.items())
    commands.set("scontrol", f"printf '{shown}\\n'")
    pilots = [Pilot(tag=job, node="n1", job=job) for job in (*ends, "17", "")]
    preempted = asyncio.run(commands.scheduler().preempted(pilots))
    assert [pilot.job for pilot in preempted] == ["12", "13"]


def test_a_claim_that_leads_nowhere_lapses_and_counts_again_later(commands: Commands) -> None:
    waiting = SQUEUE.read_text().splitlines()
    waiting[3] = waiting[3].replace("\x1f8\x1fn[1-8]", "\x1f2\x1f").replace("haswell", "skylake")
    commands.show("\n".join(waiting))

    async def idle(scheduler: SlurmScheduler) -> int:
        return len((await scheduler.poll()).idle)

    async def scenario() -> list[int]:
        scheduler, seen = commands.scheduler(), []
        for later in (0, 60, 61, 1, 1000, 200):
            commands.clock.time += later
            seen.append(await idle(scheduler))
        return seen

    whole = 6
    assert asyncio.run(scenario()) == [whole - 2, 1, 1, whole, whole, whole - 2]


def test_a_queue_without_end_is_read_as_far_as_the_bound(commands: Commands) -> None:
    """What comes first, the jobs that run and those of high priority, still counts."""
    flood = "yes $mark | tr '\\n' x"
    commands.set(
        "squeue", f'mark=$(echo "$SQUEUE_FORMAT" | cut -c1-16); sed "s/^{MARK}/$mark/" queue; {flood}'
    )
    seen = asyncio.run(commands.scheduler().poll())
    assert seen.idle == {"n6", "n7", "n8", "n9", "n10", "n11", "n12"}
    assert seen.unseen.startswith("squeue prints more than 1 MB (max_squeue_mb)")


def test_other_commands_without_end_are_failures(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.run, "__kwdefaults__", {**shared.run.__kwdefaults__, "most_bytes": 1000})
    monkeypatch.setattr(
        slurm_command.run, "__kwdefaults__", {**slurm_command.run.__kwdefaults__, "most_bytes": 1000}
    )
    commands.set("scontrol", f"{ANSWERS}yes; yes >&2")
    assert fails(commands.scheduler().poll) == "scontrol printed more than 0 MB"


def test_a_command_that_prints_on_while_it_is_killed_ends_as_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    killpg = os.killpg

    def later(group: int, number: int) -> None:
        asyncio.get_running_loop().call_later(0.1, killpg, group, number)

    monkeypatch.setattr(shared.os, "killpg", later)
    printed = asyncio.run(
        shared.run(["yes"], os.environ, 20.0, explain=lambda _, otherwise: otherwise, most_bytes=1000)
    )
    assert printed.cut and len(printed.raw) == 1000
    assert printed.took_s < 10.0


def test_variables_that_steer_slurms_commands_are_dropped() -> None:
    kept = environment({"PATH": "/bin", "SCANCEL_STATE": "RUNNING", "SLURM_CONF_SERVER": "x"})
    assert kept == {"PATH": "/bin", "SLURM_CONF_SERVER": "x"}


def test_only_the_last_pilot_that_was_submitted_for_a_node_has_its_job(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, asked = commands.scheduler(), list[Mapping[Pilot, str]]()

    async def causes(jobs: Mapping[Pilot, str]) -> Mapping[Pilot, str]:
        asked.append(jobs)
        return {}

    async def scenario() -> None:
        await scheduler.submit(PILOT, "secret")
        monkeypatch.setattr(scheduler, "causes", causes)
        await scheduler.failures([PILOT, replace(PILOT, tag="f" * 32)])

    asyncio.run(scenario())
    assert asked == [{PILOT: "4711"}]
