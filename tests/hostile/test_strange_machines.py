"""What users can do to others by way of batch systems: folders that look like a testbed, and a Slurm that is
full of one user's jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.testbeds.waiting import until
from bftrainer.model.machine import Pilot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import Records
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.quarantine import FULL_S, Quarantine
from lsf.emulator.emulator import Emulator
from slurm.testbed.bed import Testbed
from tests.support.nodes_world import run
from tests.support.slurm_commands import Clock, Commands
from tests.support.slurm_samples import PILOT_JOB

FULL = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
NOBODY, FAILURES = 65534, 5
TAKEN = "JobState=PREEMPTED Reason=None ExitCode=0:15 PreemptTime=1795289510"
FAILED = "JobState=FAILED Reason=NonZeroExitCode ExitCode=9:0 PreemptTime=None"


@pytest.mark.parametrize("at", [Testbed.at, Emulator.at])
@pytest.mark.parametrize("whose", ["everybody's", "a stranger's"])
def test_nothing_of_a_testbed_runs_that_another_user_could_have_made(
    tmp_path: Path, at: Callable[[Path], object], whose: str
) -> None:
    """Its slurm.conf names plugins, its folder holds the programs of an LSF, its files say what to end."""
    place = tmp_path / "bed"
    place.mkdir()
    for name in ("testbed.json", "site.json"):
        (place / name).write_text("{}")
    with pytest.raises(Exception, match=r"^(?!.*may put something else)"):
        at(place)  # one of ours is read
    if whose == "everybody's":
        place.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(place, NOBODY, NOBODY)
    else:
        pytest.skip("only root can give a folder away")
    with pytest.raises(Exception, match="may put something else in its place"):
        at(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's LSF runs jobs of others")
def test_an_emulated_lsf_opens_no_file_that_the_jobs_own_user_may_not(tmp_path: Path) -> None:
    """The user names what a job prints to and what bsub reads; the server runs as root."""
    theirs = tmp_path / "of-root"  # below a folder that is root's alone
    theirs.write_text("h1\n")
    with Emulator(hosts=1) as lsf:
        into = str(theirs)
        for options in (("-oo", into), ("-o", "/dev/null", "-e", into), ("-cwd", str(tmp_path))):
            lsf.run("bsub", "-n", "1", *options, "id", user=NOBODY, check=True)
        said = lsf.run("bsub", "-hostfile", str(theirs), "id", user=NOBODY)
        assert "Cannot open" in said.stderr, "what stands there is not looked at"
        assert until(lambda: all(job["state"] in ("DONE", "EXIT") for job in lsf.jobs()), 20)
        assert [job["state"] for job in lsf.jobs()] == ["EXIT", "EXIT", "DONE"]
    assert theirs.read_text() == "h1\n" and theirs.stat().st_uid == 0


def test_a_full_slurm_keeps_nobody_waiting_long_after_it_has_room_again(tmp_path: Path) -> None:
    """One user's jobs are as many as Slurm takes (MaxJobCount): that is no failure of another's pilots."""
    commands, clock = Commands(tmp_path), Clock()
    commands.set("sbatch", f"echo '{FULL}' >&2; exec sleep 100")  # until it is given up
    scheduler = commands.scheduler(replace(PILOT_JOB, exec_prefix=("env", "WHO={user}")))
    hits: list[str] = []
    pilots = Pilots(
        *(scheduler, b"key", clock, lambda node: False, lambda *told: None, lambda reason: None),
        start_s=60.0,
        spare_s=10.0,
        per_minute=100,
        quarantine=Quarantine(clock, lambda: frozenset({"ann"}), lambda user, reason: hits.append(user)),
        records=lifecycle.begun(Records(), {f"n{i}" for i in range(FAILURES + 1)}, clock.now()),
    )

    async def scenario() -> None:
        for i in range(FAILURES):
            await pilots.order(pilots.to_submit({f"n{i}": "ann"}), lambda node: None)
            commands.set("sbatch", f"echo '{FULL}' >&2; exit 1")  # or until it gives up by itself
            assert len(commands.calls()) == i + 1 and "unable to accept" in pilots.quarantine.barred()["ann"]
            clock.time += FULL_S
        assert [pilot.node for pilot in pilots.to_submit({f"n{FAILURES}": "ann"})] == [f"n{FAILURES}"]

    run(scenario)
    assert hits == [], "nobody has hit a bound"


def test_no_users_comment_says_how_another_users_pilot_has_ended(tmp_path: Path) -> None:
    """`scontrol show job` prints comments with their line breaks: a line may look like another's job."""
    (tmp_path / "job-11").write_text(f"JobId=11 {TAKEN} Comment=x\nJobId=12 {FAILED}\n")
    (tmp_path / "job-12").write_text(f"JobId=12 {TAKEN} Comment=\n")
    commands = Commands(tmp_path)
    commands.set("scontrol", "while read -r show job number; do cat job-$number; done")
    mine, hers = (Pilot(tag=f"{i:032x}", node=f"n{i}", user=f"u{i}", job=str(i)) for i in (11, 12))
    scheduler = commands.scheduler(replace(PILOT_JOB, exec_prefix=("env", "WHO={user}")))

    async def scenario() -> None:
        assert hers in await scheduler.preempted([mine, hers])
        assert hers not in await scheduler.failures([mine, hers])

    run(scenario)
