"""Workers that keep a node and do nothing with it are killed, and their program is to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.launch.deadlines import OBEYS_S, PARTED_S, TimeLimits
from bftrainer.model.actions import Regroup, StartWorker, StopWorker
from bftrainer.model.events import TrainerEnded, WorkerLost
from bftrainer.wire.messages.from_agent import Running
from tests.support.native_stage import NativeStage
from tests.support.timers import Timers

SEE_LOGS = "; see bftrainer logs 1 --node n"


class Stage(NativeStage):
    """A native launcher with limits of 900 s to start and 3,600 s without progress."""

    def __init__(
        self,
        start_s: float | None = 900.0,
        progress_s: float | None = 3600.0,
        silent_s: float | None = None,
    ) -> None:
        self.timers = Timers()
        limits = {"start_s": start_s, "progress_s": progress_s, "silent_s": silent_s}
        super().__init__(TimeLimits(**limits, later=self.timers.later, now=self.timers.now))

    def ready(self, *nodes: str) -> None:
        self.start(1, *nodes)
        for node in nodes:
            self.said(node, "ready", generation=0)

    def training(self, *nodes: str) -> None:
        self.ready(*nodes)
        self.launcher.perform(Regroup(trainer=1, generation=2, members=nodes))
        for node in nodes:
            self.joined(node, 2, survivor=False, step=0, size=len(nodes))

    def steps(self, step: int) -> None:
        at = {"generation": 2, "step": step, "samples": 10 * step, "epoch": 0, "metrics": {}}
        self.said("n", "progress", size=len(self.launcher.known[1].members), rate=None, **at)

    def killed(self) -> list[tuple[str, str]]:
        return [(node, m["reason"]) for node, m in self.sent if m["type"] == "kill"]

    def obey(self, *nodes: str, reason: str = "killed") -> None:
        for node in nodes:
            self.said(node, "exited", code=-9, phase="starting", reason=reason, last=None)

    def lost(self) -> list[tuple[str, str, bool]]:
        return [(e.node, e.reason, e.blame) for e in self.events if isinstance(e, WorkerLost)]


def test_a_script_that_never_reaches_the_loop_loses_its_node_and_is_to_blame() -> None:
    stage = Stage()
    stage.start(1, "n")
    stage.timers.advance(899.0)
    assert stage.killed() == []
    stage.timers.advance(1.0)
    reason = "did not reach elastic.Run within 900 s"
    assert stage.killed() == [("n", reason)]
    stage.obey("n")
    assert [e.late for e in stage.events if isinstance(e, WorkerLost)] == [True]
    assert stage.lost() == [("n", reason + SEE_LOGS, True)]
    stage.timers.advance(10_000.0)
    assert len(stage.lost()) == 1


def test_a_node_whose_worker_is_lost_again_and_again_has_one_time_limit() -> None:
    stage = Stage(silent_s=30.0)
    stage.start(1, "n")
    waiting = stage.timers.waiting
    for generation in range(2, 102):
        stage.obey("n")
        stage.launcher.perform(StartWorker(trainer=1, generation=generation, node="n"))
    assert stage.timers.waiting == waiting
    stage.timers.advance(900.0)
    assert len(stage.killed()) == 1


def test_the_user_is_told_of_a_script_that_does_not_reach_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(silent_s=30.0)
    stage.start(1, "n", "m")
    stage.timers.advance(29.0)
    assert stage.launcher.note(1) == ""
    stage.timers.advance(1.0)
    note = stage.launcher.note(1)
    assert note.startswith("on m, n its script has not reached elastic.Run") and "launcher: torchrun" in note
    assert len([record for record in caplog.records if "has not reached elastic.Run" in record.message]) == 1
    stage.said("n", "ready", generation=0)
    assert stage.launcher.note(1).startswith("on m its script")
    stage.said("m", "ready", generation=0)
    assert stage.launcher.note(1) == "" and stage.killed() == []


def test_a_newcomer_that_takes_long_is_not_told_of_as_others_have_reached_the_loop() -> None:
    stage = Stage(silent_s=30.0)
    stage.training("n")
    stage.launcher.perform(StartWorker(trainer=1, generation=3, node="m"))
    stage.agent("m")
    stage.timers.advance(60.0)
    assert stage.launcher.note(1) == ""


@pytest.mark.parametrize("nodes", ["m", "nm"])
def test_a_script_that_never_reached_the_loop_fails_where_several_nodes_ran_it(nodes: str) -> None:
    stage = Stage()
    stage.launcher.add(1, replace(stage.launcher.known[1].spec, samples=None))
    stage.start(1, *nodes)
    stage.said("m", "exited", code=0, phase="starting", reason="", last=None)
    end = stage.events[0]
    assert isinstance(end, TrainerEnded)
    told = "its script ended with exit code 0 on m, and never reached elastic.Run"
    if nodes == "m":
        assert (end.status, end.reason) == ("completed", told)
    else:
        assert end.status == "failed" and "launcher: torchrun" in end.reason
        assert end.reason.startswith(f"{told}: each of its 2 processes ran all of it by itself")


def test_time_counts_from_the_order_to_start_and_waiting_before_a_new_attempt_does_not_count() -> None:
    stage = Stage()
    stage.launcher.perform(StartWorker(trainer=1, generation=1, node="n", attempt=3))
    stage.timers.advance(5000.0)  # its pilot takes that long
    assert stage.killed() == []
    stage.agent("n")
    stage.timers.advance(903.0)
    assert stage.killed() == []
    stage.timers.advance(1.0)
    assert len(stage.killed()) == 1


def test_an_agent_that_does_not_obey_is_believed_no_more() -> None:
    stage = Stage()
    stage.start(1, "n")
    stage.timers.advance(900.0 + OBEYS_S)
    reason = "did not reach elastic.Run within 900 s, and its agent did not end it"
    assert stage.lost() == [("n", reason + SEE_LOGS, True)]
    stage.obey("n")
    assert len(stage.lost()) == 1


@pytest.mark.parametrize("then", ["ready", "stopped", "node gone", "lost"])
def test_what_has_started_or_is_gone_is_left_alone(then: str) -> None:
    stage = Stage()
    stage.start(1, "n")
    match then:
        case "ready":
            stage.said("n", "ready", generation=0)
        case "stopped":
            stage.launcher.perform(StopWorker(trainer=1, generation=2, node="n"))
        case "node gone":
            stage.launcher.agent_down("n")
        case "lost":
            stage.said("n", "exited", code=1, phase="starting", reason="", last=None)
            stage.launcher.perform(StartWorker(trainer=1, generation=2, node="n"))
    stage.timers.advance(899.0)
    stage.said("n", "ready", 2, generation=0)
    stage.timers.advance(10_000.0)
    assert stage.killed() == []


def test_a_ready_worker_has_to_join_the_membership_that_names_it() -> None:
    stage = Stage()
    stage.ready("n", "m")
    stage.timers.advance(10_000.0)  # it waits for as long as it is not asked to join
    stage.launcher.perform(Regroup(trainer=1, generation=2, members=("n", "m")))
    stage.timers.advance(800.0)
    stage.joined("m", 2, survivor=False, step=0)
    stage.timers.advance(100.0)
    assert stage.killed() == [("n", "did not join the other members within 900 s")]


def test_a_membership_that_was_overtaken_has_no_time_limit() -> None:
    stage = Stage()
    stage.ready("n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=2, members=("n", "m")))
    stage.timers.advance(600.0)
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n", "m")))
    stage.timers.advance(600.0)
    assert stage.killed() == []


def test_a_trainer_that_hangs_loses_its_nodes() -> None:
    stage = Stage()
    stage.training("n", "m")
    for minute in range(100):
        stage.timers.advance(3000.0)
        stage.steps(minute)
    stage.timers.advance(3599.0)
    assert stage.killed() == []
    stage.timers.advance(1.0)
    reason = "told of no progress within 3600 s"
    assert stage.killed() == [("n", reason), ("m", reason)]
    stage.obey("n", "m")
    assert [(node, blame) for node, _, blame in stage.lost()] == [("n", True), ("m", True)]


def test_a_trainer_that_is_busy_has_that_time_besides() -> None:
    stage = Stage()
    stage.training("n")
    stage.steps(1)
    stage.said("n", "busy", generation=2, seconds=10_000.0)
    stage.timers.advance(13_599.0)
    assert stage.killed() == []
    stage.timers.advance(1.0)
    assert [node for node, _ in stage.killed()] == ["n"]


def test_one_that_never_began_to_tell_hangs_as_well_and_a_new_membership_has_the_whole_time() -> None:
    stage = Stage()
    stage.training("n", "m")
    stage.timers.advance(3000.0)
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",), leaving=("m",)))
    stage.joined("n", 3, survivor=True, step=4, size=1)
    stage.timers.advance(3000.0)
    assert stage.killed() == []
    stage.timers.advance(600.0)
    assert [node for node, _ in stage.killed()] == ["n"]


def test_a_trainer_without_members_is_not_waited_for() -> None:
    stage = Stage()
    stage.training("n")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=(), leaving=("n",)))
    stage.timers.advance(100_000.0)
    assert stage.killed() == []


def finished(stage: Stage, *nodes: str) -> None:
    for rank, node in enumerate(nodes):
        at = {"generation": 2, "step": 9, "samples": 1000, "epoch": 0, "metrics": {}}
        stage.said(node, "finished", rank=rank, **at)


def test_rank_0_that_stays_when_the_work_is_done_is_ended_and_to_blame() -> None:
    stage = Stage()
    stage.training("n")
    finished(stage, "n")
    stage.timers.advance(3600.0)
    assert [node for node, _ in stage.killed()] == ["n"]
    stage.obey("n")
    reason = "the work was done, and its process did not end within 3600 s"
    assert stage.lost() == [("n", reason + SEE_LOGS, True)]


def test_one_that_says_again_and_again_that_the_work_is_done_has_one_time_limit() -> None:
    stage = Stage()
    stage.training("n", "m")
    before = stage.timers.waiting
    for _ in range(100):
        finished(stage, "n", "m")
    assert stage.timers.waiting == before + 2
    stage.timers.advance(3600.0)
    assert [node for node, _ in stage.killed()] == ["n", "m"]


def test_another_process_that_stays_when_the_work_is_done_is_ended_and_the_trainer_is_complete() -> None:
    stage = Stage()
    stage.training("n", "m")
    finished(stage, "n", "m")
    stage.said("n", "exited", code=0, phase="finished", reason="", last=None)
    stage.timers.advance(3600.0)
    assert [node for node, _ in stage.killed()] == ["m"]
    stage.obey("m")
    assert stage.lost() == []
    assert [type(e) for e in stage.events][-1] is TrainerEnded


def test_a_worker_that_is_still_in_its_loop_when_rank_0_has_ended_well_is_not_waited_for() -> None:
    stage = Stage()
    stage.training("n", "m")
    finished(stage, "n")
    stage.said("n", "exited", code=0, phase="finished", reason="", last=None)
    stage.timers.advance(PARTED_S - 1.0)
    assert stage.killed() == [] and stage.lost() == []
    stage.timers.advance(1.0)
    assert [node for node, _ in stage.killed()] == ["m"]
    stage.obey("m")
    assert stage.lost() == []
    assert [type(e) for e in stage.events][-1] is TrainerEnded


def test_workers_of_an_earlier_daemon_have_their_time_anew() -> None:
    stage = Stage()
    stage.launcher.add(1, stage.launcher.known[1].spec, published=2, members=("m",), step=5)
    stage.agent(
        "n",
        Running.model_validate({"trainer": 1, "generation": 1, "phase": "starting", "run": 0, "joined": 0}),
    )
    stage.agent(
        "m", Running.model_validate({"trainer": 1, "generation": 1, "phase": "member", "run": 0, "joined": 2})
    )
    stage.timers.advance(900.0)
    assert [node for node, _ in stage.killed()] == ["n"]
    stage.timers.advance(2700.0)
    assert [node for node, _ in stage.killed()] == ["n", "m"]


def test_a_site_may_do_without_limits() -> None:
    stage = Stage(start_s=None, progress_s=None)
    stage.start(1, "m")
    stage.training("n")
    stage.timers.advance(1e9)
    assert stage.killed() == []
