"""A site with slurmdbd: the QOS and the account that it adds for pilots."""

from __future__ import annotations

import asyncio
import pwd
import secrets
import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest

from benchmarks.testbeds import waiting
from bftrainer.errors import SchedulerError
from bftrainer.schedulers.slurm import scheduler as slurm
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from slurm.testbed import Testbed, why_not
from slurm.testbed.plan import FRAGMENTS
from tests.support.slurm_schedulers import run, schedulers, until

PILOT = ("-p", "backfill", "--account=bftrainer", "--qos=bftrainer")


@pytest.fixture(scope="module")
def user() -> str:
    """Of this run alone."""
    return f"bft-c-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def site(user: str) -> Iterator[Testbed]:
    if why := why_not(slurmdbd=True):
        pytest.skip(why)
    with Testbed(nodes=2, slurmdbd=True, users=[user]) as bed:
        yield bed


@pytest.fixture(autouse=True)
def nothing_left(site: Testbed, user: str) -> Iterator[None]:
    """Each test has both nodes to itself."""
    yield
    for name in (user, "root"):
        site.run(["scancel", "-u", name])
    site.wait_idle()


def submit(site: Testbed, user: str, *options: str) -> str:
    command = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", "exec sleep 1000"]
    return site.run(command, user=user).stdout.strip()


def shows(site: Testbed, number: str, wanted: str) -> bool:
    command = ["squeue", "-h", "-j", number, "-o", "%T %r %a %q"]
    return waiting.until(lambda: site.run(command).stdout.strip() == wanted, 240)


def test_pilots_are_not_charged_and_have_one_node_each(site: Testbed, user: str) -> None:
    site.run([str(FRAGMENTS / "bftrainer-qos.sh"), "1", user])  # again, with fewer nodes
    factor = site.run(["sacctmgr", "-n", "-P", "show", "qos", "bftrainer", "format=UsageFactor,GrpTRES"])
    assert factor.stdout.strip() == "0.000000|node=1"
    assert shows(site, submit(site, user, *PILOT, "-N1"), "RUNNING None bftrainer bftrainer")
    assert shows(site, submit(site, user, *PILOT, "-N1"), "PENDING QOSGrpNodeLimit bftrainer bftrainer")
    assert shows(site, submit(site, user, *PILOT, "-N2"), "PENDING QOSMaxNodePerJobLimit bftrainer bftrainer")
    assert shows(site, submit(site, user, "-N2"), "RUNNING None main normal")


def test_the_accounting_counts_the_main_jobs_that_have_started(
    site: Testbed, user: str, tmp_path: Path
) -> None:
    began = ceil(time.time())  # Slurm counts whole seconds: in this one jobs of another test may begin
    assert waiting.until(lambda: time.time() >= began, 2)
    job = submit(site, user, "-N1")
    assert shows(site, job, "RUNNING None main normal")
    for number in (job, submit(site, user, *PILOT, "-N1", "--job-name=bftrainer-0a1b2c3d-" + "7" * 32)):
        site.run(["scancel", number])
    scheduler = schedulers(site, tmp_path)

    async def counted(scheduler: SlurmScheduler) -> None:
        deadline = time.monotonic() + 240
        while (await scheduler.accounted(began)).started != 1:  # slurmdbd has it a moment later
            assert time.monotonic() < deadline, await scheduler.accounted(began)
            await asyncio.sleep(0.5)

    run(scheduler, counted)


@pytest.fixture
def private(site: Testbed) -> Iterator[None]:
    """Slurm hides others' jobs from users."""
    before = site.plan.conf.read_text()
    site.plan.conf.write_text(f"{before}\nPrivateData=jobs\n")
    site.run(["scontrol", "reconfigure"])
    yield
    site.plan.conf.write_text(before)
    site.run(["scontrol", "reconfigure"])


@pytest.mark.usefixtures("private")
def test_who_cannot_see_others_jobs_says_so_until_made_an_operator(
    site: Testbed, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.os, "geteuid", lambda: pwd.getpwnam(user).pw_uid)
    monkeypatch.setattr(slurm, "own_name", lambda: user)
    job = submit(site, "root", "-N2")
    listing = ["squeue", "-h", "-a", "-o", "%i"]
    assert job not in site.run(listing, user=user).stdout.split()

    async def scenario(scheduler: SlurmScheduler) -> None:
        with pytest.raises(SchedulerError, match="PrivateData=jobs") as caught:
            await scheduler.poll()
        command = str(caught.value).rpartition(": ")[2].split()
        site.run([command[0], "-i", *command[1:]])
        await until(scheduler, lambda snapshot: not snapshot.idle)
        assert job in site.run(listing, user=user).stdout.split()

    try:
        run(schedulers(site, tmp_path, looks_as=user), scenario)
    finally:
        site.run(["sacctmgr", "-i", "modify", "user", user, "set", "adminlevel=none"])
        site.run(["scancel", job])
