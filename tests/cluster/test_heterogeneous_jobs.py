"""Heterogeneous jobs on a real Slurm that preempts pilots: it starts one part on idle nodes, preempts pilots
for the next, fails to start that one, and has the whole job wait for two minutes. So pilots leave before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.nodes import vacate
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from slurm.testbed import Testbed
from tests.support.slurm_schedulers import run, schedulers, until

BOTH = "#!/bin/sh\n#SBATCH -N2 -t 1\n#SBATCH hetjob\n#SBATCH -N2 -t 1\nexec sleep 300\n"
SOON_S = 20.0
"""Far from the two minutes."""


def submit(bed: Testbed, script: str, *options: str) -> str:
    words = ["sbatch", "--parsable", "--output=/dev/null", *options]
    return bed.run(words, input=script).stdout.strip()


def running(bed: Testbed, job: str) -> bool:
    return set(bed.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.split()) == {"RUNNING"}


async def give_back(scheduler: SlurmScheduler, snapshot: Snapshot) -> None:
    held = {pilot.node: pilot for pilot in snapshot.pilots}
    await scheduler.cancel([held[node] for node in vacate.choose(snapshot.claims, frozenset(held), (), {})])


def test_its_nodes_are_clear_before_slurm_can_start_it_and_so_it_is_not_put_off(
    bed: Testbed, tmp_path: Path
) -> None:
    scheduler = schedulers(bed, tmp_path)

    async def scenario(_: SlurmScheduler) -> None:
        before = submit(bed, "#!/bin/sh\nexec sleep 300\n", "-N2", "-t1", "--nodelist=n[3-4]")
        await until(scheduler, lambda s: sum(bool(node.why) for node in s.nodes) == 2)
        pilots = [Pilot(tag=f"{i:032x}", node=f"n{i}") for i in (1, 2)]
        await asyncio.gather(*(scheduler.submit(pilot, "a secret") for pilot in pilots))
        await until(scheduler, lambda s: {p for p in s.pilots if not p.pending} == set(pilots))
        job = submit(bed, BOTH)
        claimed = await until(scheduler, lambda s: bool(s.claims))
        assert not running(bed, job), "it waits for the main job"
        await give_back(scheduler, claimed)
        clear = await until(scheduler, lambda s: not s.pilots and not s.claims)
        assert not clear.idle, "no pilot is to come back"
        bed.run(["scancel", before])
        ended = time.monotonic()
        await until(scheduler, lambda s: running(bed, job))
        assert time.monotonic() - ended < SOON_S

    try:
        run(scheduler, scenario)
    finally:
        bed.run(["scancel", "-u", "root"])
        bed.wait_idle()
