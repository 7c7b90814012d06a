"""Trainers of a log whose batch adapts: they train as measured, and decisions follow their noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import Event, Measured, TrainerEnded
from bftrainer.replay import scenario
from bftrainer.replay.dedicated.programs import ProfileError
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.loop import VirtualClock
from bftrainer.replay.trainers.adapting import AdaptingLauncher, read_courses
from bftrainer.replay.trainers.measuring import hidden
from bftrainer.replay.workload import WorkloadError
from tests.support.measured_programs import EPOCH_STEPS, write_jobs, write_program

QUIET, LOUD = 4.0, 4000.0


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """One job becomes noisy in the end, one was from the begin on; the batch of ncf is fixed."""
    for name, phi in (("turns", (QUIET, QUIET, LOUD)), ("loud", (LOUD, LOUD, LOUD)), ("ncf", QUIET)):
        write_program(tmp_path / "profiles" / name, phi=phi)
    rows = [("b", 20, "loud", 1, 16), ("a", 0, "turns", 1, 16), ("c", 30, "ncf", 1, 64)]
    return write_jobs(tmp_path / "jobs.csv", rows)


class Bench:
    """A launcher with the job `a`, and the events that it has announced."""

    def __init__(self, jobs: Path) -> None:
        self.events: list[Event] = []
        self.clock = VirtualClock(0.0)
        submissions, courses = read_courses(jobs, jobs.parent / "profiles", 1, 0.0)
        self.course = courses[0]
        self.launcher = AdaptingLauncher(
            self.events.append, self.clock, submissions=submissions, courses=courses
        )
        self.launcher.add(1, hidden(submissions)[0].spec)
        self.run = self.launcher.trainers[1]

    def members(self, generation: int, now: float, *nodes: str) -> None:
        self.clock.time = now
        new = [node for node in nodes if node not in self.run.members]
        self.launcher.perform([StartWorker(trainer=1, generation=generation, node=node) for node in new])
        self.launcher.perform([Regroup(trainer=1, generation=generation, members=nodes)])

    def measured(self) -> list[Measured]:
        """What is measured from now on, as the loop asks for it."""
        found = []
        while waiting := [event for event in self.events if isinstance(event, Measured)]:
            event = min(waiting, key=lambda event: event.time)
            self.events.remove(event)
            self.clock.time = event.time
            told = self.launcher.measurement(event)
            if told is not None and told.point is not None:
                found.append(told)
        return found


def test_it_trains_through_its_phases_as_fast_as_its_nodes_were_measured(jobs: Path) -> None:
    bench = Bench(jobs)
    seconds = bench.course.own.phases.seconds
    useful = EPOCH_STEPS * 16
    bench.members(1, 0.0, "a")
    begin = bench.run.stalled_until
    until = begin + seconds[0, 0] / 2
    assert bench.run.samples_at(until) == pytest.approx(useful / 2)
    bench.members(2, until, "a", "b")
    again = bench.run.stalled_until
    assert bench.run.samples_at(again + seconds[1, 0] / 2 + seconds[1, 1] / 4) == pytest.approx(1.25 * useful)
    end = again + seconds[1, 0] / 2 + seconds[1, 1] + seconds[1, 2]
    assert bench.run.due == pytest.approx(end)
    ends = [event for event in bench.events if isinstance(event, TrainerEnded)]
    assert [bench.launcher.is_due(event) for event in ends] == [False, True]
    bench.clock.time = bench.run.due
    bench.launcher.forget(1)
    assert bench.run.completed
    assert bench.run.samples == 3 * useful


def test_it_measures_its_batch_and_noise_once_in_each_phase(jobs: Path) -> None:
    bench = Bench(jobs)
    bench.members(1, 0.0, "a", "b")
    told = bench.measured()
    batches = [event.batch for event in told]
    assert [batch.noise if batch else None for batch in batches] == pytest.approx([QUIET, QUIET, LOUD])
    assert batches[0] is not None
    assert batches[2] is not None
    assert batches[0].batch < batches[2].batch == 256
    phases = bench.course.own.phases
    speeds = [event.point[1] for event in told if event.point]
    assert speeds == pytest.approx((phases.samples[1] / phases.seconds[1]).tolist())
    ends = bench.run.stalled_until + phases.seconds[1].cumsum()
    assert all(event.time > end for event, end in zip(told[1:], ends, strict=False))


def played(jobs: Path, **more: Any) -> dict[str, Any]:
    log = jobs.parent / "log.csv"
    log.write_text("\n".join(["idle_start,idle_end,node", *(f"0,40000,n{i}" for i in range(6))]) + "\n")
    given = {"log": log, "workload": jobs, "profiles": jobs.parent / "profiles", "t_fwd_s": 600.0}
    return dict(evaluate(scenario.of({**given, "max_parallel": None, "jct_first": 3, **more})).figures)


def test_jobs_end_sooner_by_goodput_than_by_throughput(jobs: Path) -> None:
    by_goodput, by_throughput = (played(jobs, objective=objective) for objective in ("goodput", "throughput"))
    assert by_goodput["completed"] == by_throughput["completed"] == 3
    assert by_goodput["samples"] == by_throughput["samples"] == 3 * 3 * EPOCH_STEPS * 16
    assert by_goodput["mean_turnaround_first_h"] < by_throughput["mean_turnaround_first_h"]
    assert set(by_goodput["runtime_by_model_h"]) == {"loud", "ncf", "turns"}


def test_what_does_not_go_together_is_refused(jobs: Path) -> None:
    with pytest.raises(WorkloadError, match="share: gpu: not with trainers that have whole nodes"):
        played(jobs, share="gpu")
    with pytest.raises(ProfileError, match=r"nothing was measured of workers placed \(9,\)"):
        played(jobs, gpus_per_node=9)
