"""The scheduler on a real Slurm: its contract, what it sees, and what it makes of faults."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bftrainer.errors import SchedulerError, UnsureError
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.schedulers.shared import pilot_job
from bftrainer.schedulers.shared.pilot_job import Template
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from bftrainer.settings.batch.pilots import PILOT_MAX_S
from bftrainer.testing.scheduler import SchedulerContract
from slurm.testbed import Testbed, TestbedError
from tests.support.slurm_schedulers import LONG_S, run, schedulers, until

TRIO = "trio"
MAIN = "#!/bin/sh\nexec sleep 300\n"


@pytest.fixture
def clean(bed: Testbed) -> Iterator[Testbed]:
    """The testbed, whose nodes are all idle again in the end."""
    bed.wait_idle()
    yield bed
    bed.run(["scancel", "-u", "root"])
    for name in bed.run(["scontrol", "-o", "show", "reservation"]).stdout.splitlines():
        if name.startswith("ReservationName="):
            bed.run(["scontrol", "delete", name.split()[0]])
    for node in bed.plan.names():
        with contextlib.suppress(Exception):
            bed.set_node(node, "resume")
    bed.wait_idle()


class SlurmMachine:
    """A partition of three nodes: n1 is idle until a main job takes it, n2 is used, n3 idle for ever."""

    idle, busy, other = "n1", "n2", "n3"

    def __init__(self, bed: Testbed, folder: Path) -> None:
        self._bed, self._folder = bed, folder
        submit(bed, f"--nodelist={self.busy}")

    def make(self) -> SlurmScheduler:
        return schedulers(self._bed, self._folder, partition=TRIO)

    def take(self) -> None:
        submit(self._bed, f"--nodelist={self.idle}")


def submit(bed: Testbed, *options: str, script: str = MAIN) -> str:
    """Submit a main job; returns its number."""
    words = ["sbatch", "--parsable", "--output=/dev/null", "--time=10", *options]
    return bed.run(words, input=script).stdout.strip()


def pilot_on(node: str) -> Pilot:
    return Pilot(tag=uuid.uuid4().hex, node=node)


def why(snapshot: Snapshot) -> dict[str, str]:
    return {node.name: node.why for node in snapshot.nodes}


def running(*pilots: Pilot) -> Callable[[Snapshot], bool]:
    def condition(snapshot: Snapshot) -> bool:
        found = {pilot for pilot in snapshot.pilots if not pilot.pending}
        return found == set(pilots)

    return condition


@pytest.fixture
def machine(clean: Testbed, tmp_path: Path) -> Iterator[SlurmMachine]:
    trio = "Nodes=n[1-3] PriorityTier=1 PreemptMode=CANCEL GraceTime=0 OverSubscribe=EXCLUSIVE State=UP"
    clean.run(["scontrol", "create", f"PartitionName={TRIO}", *trio.split()])
    machine = SlurmMachine(clean, tmp_path)
    run(machine.make(), lambda s: until(s, lambda snapshot: why(snapshot)[machine.busy] == "allocated"))
    yield machine
    clean.run(["scancel", "-u", "root"])
    clean.wait_idle()
    clean.run(["scontrol", "delete", f"PartitionName={TRIO}"])


class TestSlurmScheduler(SchedulerContract):
    pass


# --- what is seen -----------------------------------------------------------------------------------


def test_what_is_said_of_every_node(clean: Testbed, tmp_path: Path) -> None:
    clean.set_node("n1", "drain")
    clean.set_node("n2", "down")
    reserve = ["scontrol", "create", "reservation", "users=root", "duration=60"]
    clean.run([*reserve, "reservationname=now", "starttime=now", "nodes=n3", "flags=maint,ignore_jobs"])
    later = int(time.time()) + 3600
    clean.run([*reserve, "reservationname=later", "starttime=now+3600", "nodes=n4"])
    seen = {"n1": "drain", "n2": "down", "n3": "maintenance+reserved", "n4": ""}

    async def scenario(scheduler: SlurmScheduler) -> None:
        snapshot = await until(scheduler, lambda snapshot: why(snapshot) == seen)
        assert snapshot.idle == {"n4"}
        until_ = {node.name: node.until for node in snapshot.nodes}["n4"]
        assert until_ is not None
        assert abs(until_ - later) < LONG_S
        assert {node.partitions for node in snapshot.nodes} == {("batch", "backfill")}

    run(schedulers(clean, tmp_path), scenario)


def test_a_hole_before_a_big_job(clean: Testbed, tmp_path: Path) -> None:
    """A job holds n1; one that needs all four waits for it. The other nodes, idle or ours, are holes until it
    is expected to start, and the one that we hold is given when it could start."""
    pilot = pilot_on("n4")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret", 3600.0)
        await until(scheduler, running(pilot))
        first = submit(clean, "--nodelist=n1", "--time=20")
        await until(scheduler, lambda snapshot: why(snapshot)["n1"] == "allocated")
        big = submit(clean, "--nodes=4")
        snapshot = await until(scheduler, lambda s: all(node.until is not None for node in s.nodes))
        assert why(snapshot) == {"n1": "allocated", "n2": "", "n3": "", "n4": ""}
        ((job, ends),) = [(node.job, node.ends) for node in snapshot.nodes if node.job]
        assert job == first and ends is not None and 0 < ends - snapshot.time <= 20 * 60 + 1
        assert snapshot.claims == (), "it could not start with our node either"
        for node in snapshot.nodes:
            assert node.until is not None
            assert 0 < node.until - snapshot.time <= 20 * 60 + 1
        clean.run(["scontrol", "update", "PartitionName=batch", "PriorityTier=1"])  # nobody is preempted
        try:
            clean.run(["scancel", first])
            claimed = await until(scheduler, lambda snapshot: bool(snapshot.claims))
            assert [(c.job, c.nodes, c.count) for c in claimed.claims] == [(big, {"n4"}, 1)]
            await scheduler.cancel([pilot])
            await until(scheduler, lambda snapshot: set(why(snapshot).values()) == {"allocated"})
        finally:
            clean.run(["scontrol", "update", "PartitionName=batch", "PriorityTier=10"])

    run(schedulers(clean, tmp_path), scenario)


def test_a_reservation_later_than_any_pilot_can_be_made_and_an_earlier_one_on_demand(
    clean: Testbed, tmp_path: Path
) -> None:
    """Slurm asks no preemption: an earlier one would be refused for ever, as pilots follow each other."""
    pilot, limit_s = pilot_on("n4"), PILOT_MAX_S["preempt"]
    create = ["scontrol", "create", "reservation", "users=root", "duration=60", "nodes=n4"]

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await until(scheduler, running(pilot))
        clean.run([*create, "reservationname=later", f"starttime=now+{limit_s:.0f}"])
        clean.run(["scontrol", "delete", "reservationname=later"])
        with pytest.raises(TestbedError, match="Requested nodes are busy"):
            clean.run([*create, "reservationname=now", "starttime=now"])
        clean.run([*create, "reservationname=now", "starttime=now", "flags=ignore_jobs"])
        await until(scheduler, lambda snapshot: why(snapshot)["n4"] == "reserved")

    run(schedulers(clean, tmp_path, max_s=limit_s), scenario)


def test_a_main_job_of_a_hidden_partition_with_the_beginning_of_a_pilots_name_makes_a_claim(
    clean: Testbed, tmp_path: Path, users: tuple[str, str]
) -> None:
    pilot = pilot_on("n4")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await until(scheduler, running(pilot))
        job = submit(clean, "--partition=hidden", "--nodes=4", "--job-name=bftrainer-eval")
        snapshot = await until(scheduler, lambda snapshot: bool(snapshot.claims))
        assert [(c.job, c.nodes, c.count) for c in snapshot.claims] == [(job, {"n4"}, 1)]

    hidden = "Nodes=ALL PriorityTier=1 Hidden=YES AllowGroups=root OverSubscribe=EXCLUSIVE State=UP"
    clean.run(["scontrol", "create", "PartitionName=hidden", *hidden.split()])
    try:
        assert "hidden" not in clean.run(["scontrol", "show", "partition"], user=users[0]).stdout
        run(schedulers(clean, tmp_path, looks_as=users[0]), scenario)
    finally:
        clean.run(["scancel", "-u", "root"])
        clean.wait_idle()
        clean.run(["scontrol", "delete", "PartitionName=hidden"])


# --- what goes wrong --------------------------------------------------------------------------------


def test_a_submission_whose_answer_was_lost_is_found_by_its_tag(clean: Testbed, tmp_path: Path) -> None:
    pilot = pilot_on("n1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        clean.pause_controller()
        try:
            with pytest.raises(UnsureError, match="slurmctld does not answer"):
                await scheduler.submit(pilot, "a secret")
            with pytest.raises(SchedulerError, match="slurmctld does not answer"):
                await scheduler.poll()
        finally:
            clean.continue_controller()
        snapshot = await until(scheduler, running(pilot))
        assert "n1" in snapshot.idle
        await schedulers(clean, tmp_path).cancel([pilot])  # a new daemon knows no number
        await until(scheduler, running())

    run(schedulers(clean, tmp_path), scenario)


def test_slurmctld_stopped_and_started(clean: Testbed, tmp_path: Path) -> None:
    pilot = pilot_on("n1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await until(scheduler, running(pilot))
        clean.stop_controller()
        try:
            with pytest.raises(SchedulerError, match="slurmctld is down"):
                await scheduler.poll()
            with pytest.raises(SchedulerError, match="slurmctld is down") as caught:
                await scheduler.submit(pilot_on("n2"), "a secret")
            assert not isinstance(caught.value, UnsureError), "nobody has heard of it"
            with pytest.raises(SchedulerError, match="slurmctld is down"):
                await scheduler.pilots()
        finally:
            clean.start_controller()
        snapshot = await until(scheduler, lambda s: running(pilot)(s) and len(s.idle) == len(s.nodes))
        assert [p.job for p in snapshot.pilots] == sorted({p.job for p in snapshot.pilots})

    run(schedulers(clean, tmp_path), scenario)


def test_duplicates_are_listed_and_go_together(clean: Testbed, tmp_path: Path) -> None:
    pilot = pilot_on("n1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await scheduler.submit(pilot, "a secret")
        snapshot = await until(
            scheduler, lambda s: len(s.pilots) == 2 and not all(p.pending for p in s.pilots)
        )
        assert set(snapshot.pilots) == {pilot}
        assert len({p.job for p in snapshot.pilots}) == 2
        assert "n1" in snapshot.idle
        await scheduler.cancel([pilot])
        await until(scheduler, lambda s: not s.pilots)

    run(schedulers(clean, tmp_path), scenario)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"partition": "nope", "options": ()}, "invalid partition specified: nope|Invalid partition name"),
        ({"options": ("--gres=gpu:1",)}, "generic resource"),
        ({"options": ("--no-such-option",)}, "no-such-option|sbatch failed"),
    ],
)
def test_what_slurm_refuses_is_said_in_its_words(
    clean: Testbed, tmp_path: Path, others: dict[str, object], said: str
) -> None:
    async def scenario(scheduler: SlurmScheduler) -> None:
        with pytest.raises(SchedulerError, match=said) as caught:
            await scheduler.submit(pilot_on("n1"), "a secret")
        assert not isinstance(caught.value, UnsureError)
        assert await scheduler.pilots() == ()

    run(schedulers(clean, tmp_path, **others), scenario)


@pytest.mark.parametrize(
    ("options", "most", "said"), [(("--hold",), "UNLIMITED", "Held"), ((), "0", "PartitionNodeLimit")]
)
def test_a_pilot_that_is_held_or_over_a_limit_says_so(
    clean: Testbed, tmp_path: Path, options: tuple[str, ...], most: str, said: str
) -> None:
    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot_on("n2"), "a secret")
        snapshot = await until(scheduler, lambda s: any(said in p.pending for p in s.pilots))
        assert "n2" in snapshot.idle, "nobody else is to have it"
        assert [p.ends for p in snapshot.pilots] == [None]

    clean.run(["scontrol", "update", "PartitionName=backfill", f"MaxNodes={most}"])
    try:
        run(schedulers(clean, tmp_path, options=options), scenario)
    finally:
        clean.run(["scontrol", "update", "PartitionName=backfill", "MaxNodes=UNLIMITED"])


def test_a_node_that_goes_down_takes_its_pilot_along(clean: Testbed, tmp_path: Path) -> None:
    pilot, other = pilot_on("n1"), pilot_on("n2")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        for p in (pilot, other):
            await scheduler.submit(p, "a secret")
        await until(scheduler, running(pilot, other))
        clean.set_node("n1", "down")
        snapshot = await until(scheduler, lambda s: len(s.pilots) == 1)
        assert snapshot.pilots == (other,)
        assert why(snapshot)["n1"].startswith("down") or "completing" in why(snapshot)["n1"]
        clean.set_node("n1", "resume")
        await until(scheduler, lambda s: "n1" in s.idle and s.pilots == (other,))

    run(schedulers(clean, tmp_path), scenario)


def test_a_pilot_ends_before_its_hole_does(clean: Testbed, tmp_path: Path) -> None:
    pilot = pilot_on("n1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        with pytest.raises(SchedulerError, match="no time limit fits"):
            await scheduler.submit(pilot, "a secret", 59.0)
        await scheduler.poll()
        ends = time.time() + 170
        await scheduler.submit(pilot, "a secret", 170.0)
        snapshot = await until(scheduler, running(pilot))
        (found,) = snapshot.pilots
        assert found.ends is not None
        assert found.ends <= ends + 1

    run(schedulers(clean, tmp_path, window=True), scenario)


def test_the_secret_reaches_the_pilot_and_no_command_line(clean: Testbed, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nread -r found; echo "$found $*"\nexec sleep 600\n')
    python.chmod(0o755)
    pilot = pilot_on("n1")
    log = tmp_path / "agent-n1.log"
    word = f"$word{secrets.token_hex(16)}"  # no other process has one like it on its command line
    secret = f"pass {word}"

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, secret)
        snapshot = await until(scheduler, lambda s: log.exists() and log.read_text() != "")
        assert log.read_text().startswith(
            f"{secret} -P -m bftrainer.agent --node n1 --tag {pilot.tag} --daemon 127.0.0.1:1 "
        )
        shown = clean.run(["scontrol", "show", "job", snapshot.pilots[0].job]).stdout
        assert word not in shown
        assert "Requeue=0" in shown
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                assert word.encode() not in line.read_bytes()

    own = Template(pilot_job.find("slurm-pilot.sh.j2"))
    run(schedulers(clean, tmp_path, template=own, python=str(python)), scenario)


@pytest.mark.parametrize("how", ["no such file", "no bftrainer", "preempted"])
def test_a_pilot_that_cannot_start_is_explained(clean: Testbed, tmp_path: Path, how: str) -> None:
    python = tmp_path / "python"
    pilot = pilot_on("n1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        if how == "preempted":
            await until(scheduler, running(pilot))
            submit(clean, "--nodelist=n1")
            said = ""
        elif how == "no bftrainer":
            said = f"its job failed: exit code 1; see {tmp_path}/agent-n1.log"
        else:
            said = f"its job failed: there is no {python} on n1; see pilot_python"
        await until(scheduler, lambda snapshot: not snapshot.pilots)
        assert (await scheduler.failures([pilot])).get(pilot, "") == said
        log = (tmp_path / "agent-n1.log").read_text()
        assert {"no such file": "not found", "no bftrainer": "No module", "preempted": ""}[how] in log

    if how != "no such file":
        last = "exec sleep 600" if how == "preempted" else 'echo "No module named $2" >&2; exit 1'
        python.write_text(f"#!/bin/sh\n{last}\n")
        python.chmod(0o755)
    own = Template(pilot_job.find("slurm-pilot.sh.j2"))
    run(schedulers(clean, tmp_path, template=own, python=str(python)), scenario)


def test_two_daemons_leave_each_other_alone(clean: Testbed, tmp_path: Path) -> None:
    pilot = pilot_on("n1")
    other = schedulers(clean, tmp_path, instance="ffffffff")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await until(scheduler, running(pilot))
        snapshot = await other.poll()
        assert snapshot.pilots == ()
        assert why(snapshot)["n1"] == "allocated"
        await other.cancel([pilot])
        assert await scheduler.pilots() == (pilot,)
        with pytest.raises(SchedulerError, match="n1 is not free: allocated"):
            await other.submit(pilot_on("n1"), "a secret")

    run(schedulers(clean, tmp_path), scenario)


def lives(status: Path) -> bool:
    """Whether a process with this file of its status is there, and no zombie."""
    with contextlib.suppress(OSError):
        return "State:\tZ" not in status.read_text()
    return False


def test_a_pilot_that_ignores_its_end_does_not_keep_its_node_for_the_kill_wait(
    clean: Testbed, tmp_path: Path
) -> None:
    """Its processes stop themselves and ignore SIGTERM: a plain scancel would leave them KillWait."""
    kill_wait_s = 5.0
    template = tmp_path / "stubborn.sh.j2"
    template.write_text(
        "#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $! $$\nwhile :; do kill -STOP $! $$; done\n"
    )
    log = tmp_path / "agent-n1.log"
    pilot = pilot_on("n1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await until(scheduler, lambda snapshot: log.exists() and "\n" in log.read_text())
        processes = [Path(f"/proc/{number}/status") for number in log.read_text().splitlines()[0].split()]
        await until(scheduler, lambda snapshot: all("State:\tT" in one.read_text() for one in processes))
        began = time.monotonic()
        await scheduler.cancel([pilot])
        await until(scheduler, lambda snapshot: not snapshot.pilots and why(snapshot)["n1"] == "")
        assert time.monotonic() - began < kill_wait_s - 1
        # its child is Slurm's to find, which proctrack/linuxproc cannot once the shell is gone
        await until(scheduler, lambda snapshot: not lives(processes[1]))

    assert "KillWait=5" in clean.plan.conf.read_text()
    run(schedulers(clean, tmp_path, template=Template(template)), scenario)


@pytest.mark.nightly  # alone: beside other clusters slurmd takes a minute at times to end such steps
def test_steps_that_a_user_adds_to_its_pilot_do_not_keep_the_node_for_the_kill_wait(
    clean: Testbed, tmp_path: Path
) -> None:
    """They ignore SIGTERM. (A user that goes on starting more, ten a second, still wins at times.)"""
    kill_wait_s = 5.0
    pilot, log = pilot_on("n1"), tmp_path / "steps"
    step = f"trap '' TERM INT HUP; echo >> {log}; while :; do sleep 600; done"

    async def scenario(scheduler: SlurmScheduler) -> None:
        await scheduler.poll()
        await scheduler.submit(pilot, "a secret")
        await until(scheduler, running(pilot))
        (shown,) = await scheduler.pilots()
        words = ["srun", f"--jobid={shown.job}", "--overlap", "-n1", "--mem=0", "sh", "-c", step]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        steps = [subprocess.Popen(words, env=clean.env, **quiet) for _ in range(3)]
        try:
            await until(scheduler, lambda snapshot: log.exists() and log.read_text() == "\n" * 3)
            began = time.monotonic()
            await scheduler.cancel([pilot])
            await until(scheduler, lambda snapshot: not snapshot.pilots and why(snapshot)["n1"] == "")
            assert time.monotonic() - began < kill_wait_s - 1
        finally:
            for process in steps:
                process.kill()
                process.wait()

    assert "KillWait=5" in clean.plan.conf.read_text()
    run(schedulers(clean, tmp_path), scenario)
