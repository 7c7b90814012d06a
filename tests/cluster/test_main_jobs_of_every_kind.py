"""Main jobs of every kind, on a real Slurm that preempts nothing: each one starts as soon as it is given what
it needs, and what it needs is seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.testbeds.errors import TestbedError
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.nodes import vacate
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from slurm.testbed import Testbed
from tests.support.slurm_schedulers import run, schedulers, until

SHARED = "Nodes=ALL PriorityTier=10 OverSubscribe=NO State=UP MaxTime=INFINITE"
SOON_S = 15.0
"""Far from the end of the pilots. Alone, Slurm plans and starts such a job within 2 s."""


@pytest.fixture(scope="module")
def window() -> Iterator[Testbed]:
    """Four nodes in two racks. Every job of the partition `shared` gets the CPUs that it asks for."""
    with Testbed(nodes=4, preemption=False, features={"n[1-2]": "r1,a", "n[3-4]": "r2,a"}) as bed:
        bed.run(["scontrol", "create", "PartitionName=shared", *SHARED.split()])
        yield bed


def submit(bed: Testbed, *options: str, seconds: float = 0) -> str:
    """Options after a ":" are those of the next part of a heterogeneous job."""
    parts = " ".join(options).split(" : ")
    lines = "#SBATCH hetjob\n".join(f"#SBATCH --output=/dev/null --time=10 {part}\n" for part in parts)
    script = f"#!/bin/sh\n{lines}exec sleep {seconds}\n"
    return bed.run(["sbatch", "--parsable"], input=script).stdout.strip()


def ended(bed: Testbed, job: str) -> bool:
    return set(bed.run(["squeue", "-h", "-j", job, "-o", "%T", "-t", "all"]).stdout.split()) == {"COMPLETED"}


async def hold(scheduler: SlurmScheduler, nodes: list[str]) -> None:
    pilots = [Pilot(tag=f"{i:032x}", node=node) for i, node in enumerate(nodes, 1)]
    await scheduler.poll()
    await asyncio.gather(*(scheduler.submit(pilot, "a secret", 900.0) for pilot in pilots))
    await until(scheduler, lambda s: {p for p in s.pilots if not p.pending} == set(pilots))


def given_up(snapshot: Snapshot) -> list[Pilot]:
    """The pilots that a daemon would end, all of which are worth as much."""
    held = {pilot.node: pilot for pilot in snapshot.pilots}
    return [held[node] for node in vacate.choose(snapshot.claims, frozenset(held), (), {})]


async def give_back_until_it_has_run(scheduler: SlurmScheduler, bed: Testbed, job: str) -> int:
    """Returns how many nodes it took."""
    given: set[str] = set()
    deadline = time.monotonic() + SOON_S
    while not ended(bed, job):
        assert time.monotonic() < deadline, bed.run(["squeue"]).stdout
        pilots = given_up(await scheduler.poll())
        given |= {pilot.tag for pilot in pilots}
        await scheduler.cancel(pilots)
        await asyncio.sleep(0.1)
    return len(given)


@pytest.mark.parametrize(
    ("options", "beside", "needed"),
    [
        (("-N2", "--constraint=[r1|r2]"), (), 2),
        (("-N2", "--constraint=[r1*1&r2*1]"), (), 2),
        (("-N4", "--partition=shared"), ("-n2", "--partition=shared", "--nodelist=n1"), 3),
        (("-n14", "--partition=shared"), ("-n2", "--partition=shared", "--nodelist=n1"), 3),
        (("-N2", "--reservation=soft"), (), 2),
        (("-N2", "--constraint=r2*2&a"), (), 4),
        (("-N2", "--contiguous"), ("-N1", "--nodelist=n1"), 2),
        (("-N2", ":", "-N1"), (), 3),
        (("-N2", ":", "-N1"), ("-N1", "--nodelist=n1"), 3),
    ],
    ids=[
        "one rack",
        "both racks",
        "beside another",
        "many tasks",
        "FLEX",
        "as Slurm plans it",
        "side by side",
        "heterogeneous",
        "heterogeneous, beside another",
    ],
)
def test_it_starts_at_once_and_takes_what_it_needs(
    window: Testbed, tmp_path: Path, options: tuple[str, ...], beside: tuple[str, ...], needed: int
) -> None:
    scheduler = schedulers(window, tmp_path, window=True)

    async def scenario(_: SlurmScheduler) -> None:
        if beside:
            submit(window, *beside, seconds=300)
            await until(scheduler, lambda s: any(node.why for node in s.nodes if node.name == "n1"))
        await hold(scheduler, ["n2", "n3", "n4"] if beside else ["n1", "n2", "n3", "n4"])
        try:
            job = submit(window, *options)
        except TestbedError as error:
            if "Invalid feature specification" in str(error):
                pytest.skip("later versions refuse every constraint that is not understood")
            raise
        took = await give_back_until_it_has_run(scheduler, window, job)
        assert took <= needed, "it has run, so it had enough; Slurm may have planned it on fewer"

    soft = "reservationname=soft users=root starttime=now+7200 duration=60 nodes=n3 flags=flex"
    window.run(["scontrol", "create", "reservation", *soft.split()])
    try:
        run(scheduler, scenario)
    finally:
        window.run(["scancel", "-u", "root"])
        window.run(["scontrol", "delete", "reservationname=soft"])
        window.wait_idle()


def test_one_that_has_to_wait_takes_no_node_though_there_are_as_many_as_it_asks_for(
    window: Testbed, tmp_path: Path
) -> None:
    """The node in the middle is busy for as long as the time limit of its job says."""
    scheduler = schedulers(window, tmp_path, window=True)

    async def scenario(_: SlurmScheduler) -> None:
        submit(window, "--time=60", "--nodelist=n2", seconds=300)
        await until(scheduler, lambda s: any(node.why for node in s.nodes if node.name == "n2"))
        await hold(scheduler, ["n1", "n3"])
        waiting = submit(window, "-N3", "--contiguous", seconds=300)
        other = submit(window, "-N3", ":", "-N1", seconds=300)
        planned = await until(scheduler, lambda s: any(n.until for n in s.nodes if n.name in ("n1", "n3")))
        assert planned.claims == ()
        assert {"n1", "n3"} <= planned.idle
        idle = await until(scheduler, lambda s: "PLANNED" in states(window)["n4"])
        (n4,) = (node for node in idle.nodes if node.name == "n4")
        assert not n4.why and n4.until is not None, "it is a hole until then"
        pilot = Pilot(tag="4" * 32, node="n4")
        await scheduler.submit(pilot, "a secret", n4.until - time.time())
        await until(scheduler, lambda s: any(p == pilot and not p.pending for p in s.pilots))
        assert not ended(window, waiting) and not ended(window, other)

    try:
        run(scheduler, scenario)
    finally:
        window.run(["scancel", "-u", "root"])
        window.wait_idle()


def states(bed: Testbed) -> dict[str, str]:
    shown = bed.run(["scontrol", "show", "node", "-o"]).stdout.splitlines()
    return {line.split()[0].removeprefix("NodeName="): line.split(" State=")[1].split()[0] for line in shown}
