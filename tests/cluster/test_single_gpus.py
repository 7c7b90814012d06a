"""`share: gpu` on a real Slurm: trainers share a node's GPUs, each with a pilot, and main jobs get what they
ask for and no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.model.machine import Pilot
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from slurm.testbed import Testbed, why_not
from slurm.testbed.processes import until as wait_until
from tests.cluster.test_parts_of_nodes import gpus_of, job_of, main, ours, state
from tests.cluster.test_workers_on_gpu_nodes import seats
from tests.support.slurm_schedulers import run, schedulers, until
from tests.support.slurm_site import SlurmSite

LONG_S = 240.0
GPUS = 4


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(nodes=1, shared=True, parts=True, gres={"n1": f"gpu:a100:{GPUS}"}) as bed:
        yield bed


def test_two_trainers_share_a_node_and_a_main_job_takes_one_gpu(bed: Testbed) -> None:
    site = SlurmSite(bed, harvest="gpus", share="gpu", gpus_per_node=GPUS)
    try:
        site.start()
        for name in ("a", "b"):
            (site.root / name).mkdir()
            asked = {"nodes": None, "gpus": {"min": 1, "max": 2}, "n_max": 2, "samples": 10**7}
            site.submit(name, "seat.py", str(site.root / name), **asked)
        site.until(
            lambda: all(len(seats(site.root / name, 2)) == 2 for name in "ab"), LONG_S, "each trains on two"
        )
        found = [seat for name in "ab" for seat in seats(site.root / name, 2)]
        assert sorted(seat["device"] for seat in found) == ["0", "1", "2", "3"]
        assert all(seat["local"] == [0, 1] for seat in found)
        before = pilots(bed)
        assert [len(gpus_of(bed, job)) for job in before] == [1] * GPUS

        job = main(bed, "--gres=gpu:1")
        site.until(lambda: state(bed, job) == "RUNNING", LONG_S, "a main job has a GPU of ours")
        site.until(
            lambda: sorted(len(site.trainer(name)["members"]) for name in "ab") == [1, 2],
            LONG_S,
            "one trainer goes on with one, the other with two",
        )
        assert site.log.count(" vacated ") <= 1, "one GPU is given back"
        after = pilots(bed)
        assert len(after & before) >= GPUS - 2, "Slurm may have taken another one at the same moment"
        assert gpus_of(bed, job).isdisjoint(set().union(*(gpus_of(bed, own) for own in after)))
        site.until(
            lambda: sorted(row["why"] for row in site.get("pool")["nodes"]) == ["", "", "", "in use"],
            LONG_S,
            "the others are ours",
        )

        trained = {name: site.trainer(name)["members"] for name in "ab"}
        site.kill_daemon()
        site.start()
        site.until(
            lambda: {name: site.trainer(name)["members"] for name in "ab"} == trained, LONG_S, "they go on"
        )
        assert pilots(bed) == after, "the next daemon knows which pilot has which GPU"
    finally:
        site.close()
        bed.run(["scancel", "-p", "batch"], check=False)


def pilots(bed: Testbed) -> set[str]:
    """The jobs of pilots that run."""
    shown = bed.run(["squeue", "-h", "-p", "backfill", "-t", "RUNNING", "-o", "%i"]).stdout
    return set(shown.split())


def test_never_more_gpus_than_the_site_allows(tmp_path: Path) -> None:
    if why := why_not(slurmdbd=True):
        pytest.skip(why)
    with Testbed(nodes=1, shared=True, parts=True, slurmdbd=True, gres={"n1": f"gpu:a100:{GPUS}"}) as bed:
        bed.run(["sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxTRESPerUser=gres/gpu=2"])
        scheduler = schedulers(bed, tmp_path, parts=True, gpus=True)

        def limited() -> bool:
            return "gres/gpu=2" in bed.run(["sacctmgr", "-n", "-P", "show", "qos", "normal"]).stdout

        assert wait_until(limited, LONG_S)

        async def scenario(scheduler: SlurmScheduler) -> None:
            every = {f"n1:{number}" for number in range(GPUS)}
            await until(scheduler, lambda s: ours(s) == every)
            for gpu in sorted(every):
                await scheduler.submit(Pilot(tag=gpu[-1] * 32, node=gpu), "secret")
            await until(
                scheduler, lambda s: sum("MaxGRES" in p.pending for p in s.pilots) == 2 and len(s.pilots) == 4
            )
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                seen = await scheduler.poll()
                assert sum(not p.pending for p in seen.pilots) == 2, "no more start"
                assert ours(seen) == every, "those that wait have a free GPU each"
                await asyncio.sleep(0.2)
            waits = [p for p in seen.pilots if p.pending]
            await scheduler.cancel(waits)
            await until(scheduler, lambda s: len(s.pilots) == 2)

        run(scheduler, scenario)


def test_one_pilot_goes_for_a_gpu_and_all_for_a_whole_node(bed: Testbed, tmp_path: Path) -> None:
    """No daemon is there: Slurm itself preempts what is claimed."""

    async def scenario(scheduler: SlurmScheduler) -> None:
        every = {f"n1:{number}" for number in range(GPUS)}
        await until(scheduler, lambda s: ours(s) == every)
        held = {gpu: Pilot(tag=gpu[-1] * 32, node=gpu) for gpu in sorted(every)}
        for pilot in held.values():
            await scheduler.submit(pilot, "secret")
        seen = await until(scheduler, lambda s: all(job_of(s, gpu) for gpu in every))
        assert set().union(*(gpus_of(bed, job_of(seen, gpu)) for gpu in every)) == {0, 1, 2, 3}

        job = main(bed, "--gres=gpu:1")
        seen = await until(scheduler, lambda s: bool(s.claims) or state(bed, job) == "RUNNING")
        if seen.claims:
            ((nodes, count),) = [(claim.nodes, claim.count) for claim in seen.claims]
            assert nodes <= every and len(nodes) >= GPUS - 1, "Slurm may have begun to take one"
            assert count == 1
        seen = await until(scheduler, lambda s: state(bed, job) == "RUNNING" and len(s.pilots) == GPUS - 1)
        seen = await until(scheduler, lambda s: len(ours(s)) == GPUS - 1)
        assert {p.node for p in seen.pilots} == ours(seen), "pilots keep their GPUs"

        whole = main(bed, "--exclusive", "--gres=gpu:0")
        bed.run(["scancel", job])
        seen = await until(scheduler, lambda s: bool(s.claims) or state(bed, whole) == "RUNNING")
        assert all(claim.count == len(claim.nodes) for claim in seen.claims)
        await until(scheduler, lambda s: state(bed, whole) == "RUNNING" and not ours(s))

    run(schedulers(bed, tmp_path, parts=True, gpus=True), scenario)
    clear(bed)


def clear(bed: Testbed) -> None:
    """End all jobs, and wait until nothing of them is left."""
    bed.run(["scancel", "-p", "batch,backfill", "--state=PENDING"], check=False)
    for partition in ("batch", "backfill"):
        bed.run(["scancel", "-p", partition])
    bed.wait_idle(LONG_S)


def test_pilots_of_two_users_have_gpus_of_one_node(bed: Testbed, tmp_path: Path) -> None:
    users = ("bftann", "bfteve")
    become = ("setpriv", "--reuid={user}", "--regid={user}", "--clear-groups")

    async def scenario(scheduler: SlurmScheduler) -> None:
        every = {f"n1:{number}" for number in range(GPUS)}
        await until(scheduler, lambda s: ours(s) == every)
        held = [
            Pilot(tag=str(number) * 32, node=f"n1:{number}", user=users[number // 2])
            for number in range(GPUS)
        ]
        for pilot in held:
            await scheduler.submit(pilot, "secret")
        seen = await until(scheduler, lambda s: all(job_of(s, gpu) for gpu in every))
        assert set(seen.pilots) == set(held), "with their users"
        of_user = [
            set().union(*(gpus_of(bed, p.job) for p in seen.pilots if p.user == user)) for user in users
        ]
        assert [len(own) for own in of_user] == [2, 2] and set().union(*of_user) == {0, 1, 2, 3}
        await scheduler.cancel([pilot for pilot in held if pilot.user == users[0]])
        seen = await until(scheduler, lambda s: len(s.pilots) == 2 and ours(s) == every)
        assert {pilot.user for pilot in seen.pilots} == {users[1]}, "the other's go on"
        await scheduler.cancel(seen.pilots)
        await until(scheduler, lambda s: not s.pilots)

    with bed.with_users(users):
        run(schedulers(bed, tmp_path, parts=True, gpus=True, exec_prefix=become), scenario)
    clear(bed)
