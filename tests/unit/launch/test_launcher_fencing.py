"""Which reports a launcher believes: those of the worker, generation and run that it waits for."""

from __future__ import annotations

import pytest

from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import TrainerEnded, WorkerLost
from tests.support.messages import report, worker
from tests.support.native_stage import NativeStage

FINISHED = {"step": 10, "samples": 1000, "epoch": 0, "metrics": {}}


def training(*nodes: str) -> NativeStage:
    """Workers that generation 1 started train in generation 2."""
    stage = NativeStage()
    stage.start(1, *nodes)
    stage.launcher.perform(Regroup(trainer=1, generation=2, members=nodes))
    for node in nodes:
        stage.joined(node, 2, survivor=False, step=0, size=len(nodes))
    stage.events.clear()
    stage.sent.clear()
    return stage


def test_the_report_of_an_earlier_run_is_dropped() -> None:
    stage = training("n")
    stage.launcher.known[1].workers["n"].run = 5
    stage.launcher.reported("n", report("exited", run=4, code=1, phase="member", reason="", last={}))
    assert stage.events == []
    stage.launcher.reported("n", report("exited", run=5, code=1, phase="member", reason="", last={}))
    assert [type(event) for event in stage.events] == [WorkerLost]


def test_progress_and_figures_of_a_generation_that_was_left_behind_are_dropped() -> None:
    stage = training("n")
    position = {"size": 1, "step": 9, "samples": 90, "epoch": 0, "metrics": {}}
    stage.said("n", "progress", generation=1, rate=1.0, **position)
    stage.said("n", "metrics", generation=1, **position)
    stage.said("n", "finished", generation=1, **position)
    assert stage.progress == [] and not stage.launcher.known[1].finished
    assert stage.launcher.known[1].committed == 0
    stage.said("n", "progress", generation=2, rate=1.0, **position)
    assert [progress.step for progress in stage.progress] == [9]


def test_the_work_is_not_done_because_an_old_generation_said_so_last() -> None:
    stage = training("n")
    last = {"type": "finished", "generation": 1, **FINISHED}
    stage.said("n", "exited", code=1, phase="finished", reason="", last=last)
    assert [type(event) for event in stage.events] == [WorkerLost]
    stage = training("n")
    last = {"type": "finished", "generation": 2, **FINISHED}
    stage.said("n", "exited", code=0, phase="finished", reason="", last=last)
    assert [type(event) for event in stage.events] == [TrainerEnded]
    assert stage.progress[-1].samples == 1000, "said while there was no connection"


def test_a_worker_of_an_earlier_start_that_an_agent_lists_is_not_taken_for_the_present_one() -> None:
    stage = NativeStage()
    stage.start(3, "n")
    stage.agent("n", worker(3, "ready"), worker(1, "leaving"))
    assert stage.launcher.known.workers(1) == {"n": "ready"}
    stage = NativeStage()
    stage.start(3, "n")
    stage.agent("n", worker(1, "ready"))  # the order to start another one was lost
    assert [type(event) for event in stage.events] == [WorkerLost]


def test_a_worker_that_is_not_wanted_is_stopped_and_not_taken_over() -> None:
    stage = NativeStage()
    stage.agent("n", worker(1, "member", 2), wanted=set())
    assert stage.kinds() == [("n", "stop")] and stage.launcher.known.workers(1) == {}


def test_a_loss_carries_the_generation_that_started_the_worker() -> None:
    stage = training("n", "m")
    stage.said("n", "exited", code=-9, phase="member", reason="", last={})
    (event,) = stage.events
    assert isinstance(event, WorkerLost) and event.generation == 1


@pytest.mark.parametrize(("code", "blame"), [(-15, False), (-9, False), (-6, True), (3, True)])
def test_only_signals_from_outside_are_not_blamed_on_the_program(code: int, blame: bool) -> None:
    stage = training("n")
    stage.said("n", "exited", code=code, phase="member", reason="", last={})
    (event,) = stage.events
    assert isinstance(event, WorkerLost) and event.blame is blame


def test_nothing_is_started_for_a_trainer_whose_work_is_done() -> None:
    stage = training("n", "o")
    for rank, node in enumerate("no"):
        stage.said(node, "finished", generation=2, rank=rank, **FINISHED)
    stage.agent("m")
    stage.sent.clear()
    stage.launcher.perform(StartWorker(trainer=1, generation=3, node="m"))
    assert stage.sent == [] and "m" not in stage.launcher.known.workers(1)
    stage.said("n", "exited", code=0, phase="finished", reason="", last={})
    stage.launcher.perform(StartWorker(trainer=1, generation=4, node="x"))
    assert "x" not in stage.launcher.known[1].workers


@pytest.mark.parametrize(("attempt", "delay_s"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (9, 30.0)])
def test_a_worker_that_failed_before_is_started_later(attempt: int, delay_s: float) -> None:
    stage = NativeStage()
    stage.agent("n")
    stage.launcher.perform(StartWorker(trainer=1, generation=1, node="n", attempt=attempt))
    assert stage.sent[-1][1]["delay_s"] == delay_s
