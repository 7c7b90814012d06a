"""Main jobs that share nodes and want what pilots hold: none is requeued, none waits much longer."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.testbeds.harvest import Harvest
from benchmarks.testbeds.impact.events import What
from benchmarks.testbeds.impact.reasons import requeued
from benchmarks.testbeds.runs import MainRun
from benchmarks.testbeds.workload import MainJob
from slurm.impact.logs import events_of
from slurm.testbed import Testbed
from slurm.testbed.machine import SlurmMachine

NODES = 4
ROUNDS = 3
EVERY_S, ALONE_EVERY_S = 15.3, 8.3
"""After so long pilots hold the nodes of the jobs before again. No multiples of Slurm's interval of a second,
so that jobs come at other moments of it."""
BEFORE_S, RUNS_S = 2.2, 6.5
"""The whole node's job comes so long before the heterogeneous one, and runs for so long: a poll sees the
latter before it can start."""
SPECS = (Path(__file__).parents[2] / "benchmarks" / "testbeds" / "quick.yaml",)
LATER_S, AT_MOST_S = 1.0, 10.0
"""Of half of the jobs, and of any. A heterogeneous job whose start has failed waits two minutes."""
LONGEST_S = (ROUNDS + 1) * EVERY_S + AT_MOST_S

NO_ROOM_LEFT = {"headroom": "0", "poll_s": 2.5}
"""So that pilots are on all nodes, and what is done only when a job can start comes after backfill, which has
its turn once a second."""

WHOLE = ("--nodes=1", "--exclusive")
REST = (f"--nodes={NODES - 1}", "--ntasks-per-node=4")
ONE = ("--ntasks=1",)
FIRST = (*ONE, "--nodelist=n1")
"""Slurm 26.05 puts a component of one core on the first node that has one, though no room is left for others
then. So the long job is there in either run."""


def main_jobs(every_s: float) -> list[MainJob]:
    """A long job keeps pilots off a node, whose other cores are free. In each round a job takes a whole node,
    and a heterogeneous one waits for it. When that node is free, Slurm can start the first component beside
    the long job, and the second but for pilots: it would preempt them, fail, and put the whole job off."""
    found = [MainJob(1, 0, 0.25, (ROUNDS + 1) * every_s, 300, "one core", (FIRST,))]
    for number in range(ROUNDS):
        begin_s = number * every_s + every_s / 2
        found += [
            MainJob(2 + 2 * number, begin_s, 1, RUNS_S, 60, "whole node", (WHOLE,)),
            MainJob(3 + 2 * number, begin_s + BEFORE_S, NODES, 0.3, 60, "heterogeneous", (ONE, REST)),
        ]
    return found


def taken(bed: Testbed, specs: Sequence[Path]) -> tuple[tuple[MainRun, ...], dict[str, str]]:
    """The main jobs of a run, and its logs. A job that waits for too long is cancelled."""
    every_s = EVERY_S if specs else ALONE_EVERY_S
    with Harvest(SlurmMachine(bed), main_jobs(every_s), specs, settings=NO_ROOM_LEFT) as harvest:
        for scene in harvest.scenes():
            if scene.runs and scene.time > scene.runs[0].submitted + LONGEST_S:
                break
        return harvest.finish().runs, harvest.logs()


def test_no_job_is_requeued_and_none_waits_much_longer() -> None:
    with Testbed(nodes=NODES, shared=True) as bed:
        without, _ = taken(bed, ())
        with_, logs = taken(bed, SPECS)
    given = [
        event for event in events_of(logs) if event.what in (What.PREEMPTED, What.VACATED) and event.jobs
    ]
    assert len(given) >= ROUNDS, "pilots were in the way of too few jobs to show anything"
    waited = {run.number: run.wait_s for run in without}
    told = "\n".join(f"{run.number} {run.kind}: {run.wait_s}, {waited[run.number]} s" for run in with_)
    assert {run.state for run in with_} == {"COMPLETED"}, told
    assert not requeued(events_of(logs), with_), told
    later = [(run.wait_s or 0.0) - (waited[run.number] or 0.0) for run in with_]
    assert max(later) < AT_MOST_S, told
    assert statistics.median(later) < LATER_S, told
