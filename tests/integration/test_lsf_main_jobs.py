"""The end-to-end scenario on an emulated LSF: main jobs and trainers, all of them real processes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.testbeds.harvest import Harvest
from benchmarks.testbeds.impact.reasons import requeued
from benchmarks.testbeds.runs import waits
from lsf.emulator import Emulator
from lsf.impact.condition import Condition
from lsf.impact.machine import LsfMachine, events_of

SPECS = (Path(__file__).parents[2] / "benchmarks" / "testbeds" / "quick.yaml",)


def test_main_jobs_have_hosts_that_trainers_trained_on_and_none_fails() -> None:
    condition = Condition(mix="slots", nodes=3, jobs=12, seconds=20, load=0.22)
    with (
        Emulator(hosts=condition.nodes, cycle_s=0.5) as emulator,
        Harvest(
            LsfMachine(emulator), condition.main_jobs(1), SPECS, settings={"headroom": 0, "debounce_s": 0}
        ) as harvest,
    ):
        scenes = list(harvest.scenes())
        outcome, logs = harvest.finish(), harvest.logs()
    assert max(scene.training() for scene in scenes) == condition.nodes
    assert [run.state for run in outcome.runs] == ["COMPLETED"] * condition.jobs
    assert not requeued(events_of(logs), outcome.runs)
    assert len(waits(outcome.runs)) == condition.jobs
    assert outcome.samples > 0
    assert outcome.trainers is not None
    assert not outcome.trainers.strays
