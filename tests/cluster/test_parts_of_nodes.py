"""On a real Slurm whose jobs share nodes, pilots have the GPUs that main jobs leave free, and no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from slurm.testbed import Testbed, why_not
from slurm.testbed.processes import until as wait_until
from tests.support.slurm_schedulers import LONG_S, run, schedulers, until

GPUS = {"n1": "gpu:a100:4", "n2": "gpu:v100:2"}
ONE = ("--cpus-per-task=1", "--mem=200M")


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(nodes=2, shared=True, parts=True, gres=GPUS) as bed:
        yield bed


@pytest.fixture
def harvest(bed: Testbed, tmp_path: Path) -> Iterator[SlurmScheduler]:
    yield schedulers(bed, tmp_path, parts=True)
    bed.run(["scancel", "-p", "batch,backfill", "--state=PENDING"], check=False)
    for partition in ("batch", "backfill"):
        bed.run(["scancel", "-p", partition])
    bed.wait_idle(LONG_S)


def main(bed: Testbed, *words: str) -> str:
    """A main job that sleeps; returns its number."""
    command = ["sbatch", "--parsable", "--time=5", "--output=/dev/null", *ONE, *words, "--wrap=sleep 600"]
    return bed.run(command).stdout.strip()


def gpus_of(bed: Testbed, job: str) -> set[int]:
    """The numbers of the GPUs that Slurm has given to a job."""
    shown = bed.run(["scontrol", "-d", "-o", "show", "job", job]).stdout
    listed = shown.partition("(IDX:")[2].partition(")")[0]
    bounds = [part.split("-") for part in listed.split(",") if part[:1].isdecimal()]
    return {number for part in bounds for number in range(int(part[0]), int(part[-1]) + 1)}


def state(bed: Testbed, job: str) -> str:
    return bed.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]).stdout.strip()


def pilot(node: str, tag: str) -> Pilot:
    return Pilot(tag=tag * 32, node=node)


def job_of(snapshot: Snapshot, node: str) -> str:
    return next((p.job for p in snapshot.pilots if p.node == node and not p.pending), "")


def ours(snapshot: Snapshot) -> set[str]:
    return {node.name for node in snapshot.nodes if not node.why}


def test_a_pilot_has_the_gpus_that_a_main_job_leaves_free(bed: Testbed, harvest: SlurmScheduler) -> None:
    first = main(bed, "--nodelist=n1", "--gres=gpu:1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        seen = await until(scheduler, lambda s: state(bed, first) == "RUNNING" and ours(s) == {"n1", "n2"})
        assert seen.claims == ()
        await scheduler.submit(pilot("n1", "a"), "secret")
        await scheduler.submit(pilot("n2", "b"), "secret")
        seen = await until(scheduler, lambda s: bool(job_of(s, "n1") and job_of(s, "n2")))
        assert gpus_of(bed, job_of(seen, "n1")) == {0, 1, 2, 3} - gpus_of(bed, first)
        assert gpus_of(bed, job_of(seen, "n2")) == {0, 1}, "n2 was idle: all of it"
        assert ours(seen) == {"n1", "n2"}

        beside = main(bed, "--nodelist=n1", "--gres=gpu:0", "--mem=50M")
        await until(scheduler, lambda s: state(bed, beside) == "PENDING" and bool(s.claims))
        bed.run(["scancel", beside])

    run(harvest, scenario)


def test_a_main_job_that_takes_a_gpu_of_ours_gets_it_and_the_rest_comes_back(
    bed: Testbed, harvest: SlurmScheduler
) -> None:
    first = main(bed, "--nodelist=n1", "--gres=gpu:1")

    async def scenario(scheduler: SlurmScheduler) -> None:
        await until(scheduler, lambda s: state(bed, first) == "RUNNING" and "n1" in ours(s))
        held = pilot("n1", "a")
        await scheduler.submit(held, "secret")
        await until(scheduler, lambda s: bool(job_of(s, "n1")))
        second = main(bed, "--nodelist=n1", "--gres=gpu:a100:1")
        if (await until(scheduler, lambda s: bool(s.claims) or state(bed, second) == "RUNNING")).claims:
            await scheduler.cancel([held])  # as the daemon does: before Slurm preempts it
        await until(scheduler, lambda s: state(bed, second) == "RUNNING" and "n1" in ours(s) and not s.pilots)
        again = pilot("n1", "c")
        await scheduler.submit(again, "secret")
        seen = await until(scheduler, lambda s: bool(job_of(s, "n1")) or "n1" not in ours(s))
        if not job_of(seen, "n1"):  # the second job started within the last poll, and again asks for too much
            await scheduler.cancel([again])
            await until(scheduler, lambda s: not s.pilots)
            await scheduler.submit(pilot("n1", "d"), "secret")
            seen = await until(scheduler, lambda s: bool(job_of(s, "n1")))
        got = gpus_of(bed, first), gpus_of(bed, second), gpus_of(bed, job_of(seen, "n1"))
        assert [len(own) for own in got] == [1, 1, 2]
        assert set().union(*got) == {0, 1, 2, 3}

    run(harvest, scenario)


def test_a_type_that_main_jobs_have_used_up_does_not_count(bed: Testbed, harvest: SlurmScheduler) -> None:
    """Where a site accounts for no GPUs, Slurm says nothing of them in AllocTRES."""
    v100 = main(bed, "--gres=gpu:v100:2")

    async def scenario(scheduler: SlurmScheduler) -> None:
        why = {"n1": "", "n2": "mixed"}
        await until(scheduler, lambda s: ours(s) == {"n1"} and {n.name: n.why for n in s.nodes} == why)
        assert state(bed, v100) == "RUNNING"
        waits = main(bed, "--gres=gpu:v100:1")
        seen = await until(scheduler, lambda s: waits in s.waiting)
        assert seen.claims == ()

    run(harvest, scenario)


def test_never_more_gpus_than_the_site_allows(tmp_path: Path) -> None:
    if why := why_not(slurmdbd=True):
        pytest.skip(why)
    with Testbed(nodes=2, shared=True, parts=True, slurmdbd=True, gres={"n[1-2]": "gpu:a100:4"}) as bed:
        bed.run(["sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxTRESPerUser=gres/gpu=4"])
        scheduler = schedulers(bed, tmp_path, parts=True)

        def limited() -> bool:
            return "gres/gpu=4" in bed.run(["sacctmgr", "-n", "-P", "show", "qos", "normal"]).stdout

        assert wait_until(limited, LONG_S)

        async def scenario(scheduler: SlurmScheduler) -> None:
            await until(scheduler, lambda s: ours(s) == {"n1", "n2"})
            for node, tag in (("n1", "a"), ("n2", "b")):
                await scheduler.submit(pilot(node, tag), "secret")
            seen = await until(
                scheduler, lambda s: any("MaxGRES" in p.pending for p in s.pilots) and len(s.pilots) == 2
            )
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                seen = await scheduler.poll()
                assert sum(not p.pending for p in seen.pilots) <= 1
                await asyncio.sleep(0.2)
            waits = next(p for p in seen.pilots if p.pending)
            await scheduler.cancel([waits])
            await until(scheduler, lambda s: waits not in s.pilots)

        try:
            run(scheduler, scenario)
        except SchedulerError as error:  # pragma: no cover
            pytest.fail(str(error))
