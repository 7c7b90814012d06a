"""What is the end of a native trainer, and what is not: rank 0 has the last word, by its exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.launch.job import REPEATED
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import Measured, Resync, TrainerEnded, WorkerLost
from bftrainer.model.trainer import TrainerStatus
from tests.support.messages import worker
from tests.support.native_stage import SPEC, NativeStage

STANDING = {"generation": 2, "step": 10, "samples": 1000, "epoch": 0, "metrics": {}}


def training(*nodes: str, until_exit: bool = False) -> NativeStage:
    """Workers that generation 1 started train in generation 2."""
    stage = NativeStage()
    if until_exit:
        stage.launcher.add(1, replace(SPEC, samples=None))
    stage.start(1, *nodes)
    stage.launcher.perform(Regroup(trainer=1, generation=2, members=nodes))
    for node in nodes:
        stage.joined(node, 2, survivor=False, step=0, size=len(nodes))
    stage.events.clear()
    stage.sent.clear()
    return stage


def finished(stage: NativeStage, *nodes: str) -> None:
    """These nodes say that the work is done; the first is rank 0."""
    for rank, node in enumerate(nodes):
        stage.said(node, "finished", rank=rank, **STANDING)


def exited(stage: NativeStage, node: str, code: int, phase: str = "finished", reason: str = "") -> None:
    stage.said(node, "exited", code=code, phase=phase, reason=reason, last={})


def ends(stage: NativeStage) -> list[TrainerEnded]:
    return [event for event in stage.events if isinstance(event, TrainerEnded)]


def lost(stage: NativeStage) -> dict[str, bool]:
    """Node -> whether its program is to blame."""
    return {event.node: event.blame for event in stage.events if isinstance(event, WorkerLost)}


def test_an_error_in_the_body_of_the_loop_is_a_failure_though_the_loop_was_left() -> None:
    stage = training("n", "m", until_exit=True)
    finished(stage, "n")  # what `Run` says when its loop is left, by whatever
    stage.said("m", "broken", generation=2, reason="n is gone")
    exited(stage, "n", 1)
    assert lost(stage) == {"n": True} and ends(stage) == []
    assert ("m", "kill") not in stage.kinds(), "it goes on"


@pytest.mark.parametrize("code", [1, -11, -6])
def test_an_exit_code_other_than_0_after_the_loop_is_a_failure(code: int) -> None:
    stage = training("n")
    finished(stage, "n")
    exited(stage, "n", code)
    assert lost(stage) == {"n": True} and ends(stage) == []


def test_a_node_with_too_few_devices_is_to_blame_and_not_the_program() -> None:
    stage = training("n")
    stage.said("n", "exited", code=127, phase="starting", reason="2 devices", last={}, unfit=True)
    assert lost(stage) == {"n": False}


def test_without_an_amount_of_work_rank_0_ends_its_trainer_and_no_other_worker_does() -> None:
    stage = training("n", "m", until_exit=True)
    stage.start(3, "x")
    stage.said("x", "exited", 3, code=0, phase="starting", reason="", last={})
    assert list(lost(stage)) == ["x"] and ends(stage) == []
    exited(stage, "m", 0, "member")
    assert list(lost(stage)) == ["x", "m"] and ends(stage) == []
    exited(stage, "n", 0, "member")
    assert len(ends(stage)) == 1


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (None, "its work is done"),
        (1000, "its work is done"),
        (2000, "its script left its loop after 1,000 of 2,000 samples, and ended with exit code 0"),
    ],
)
def test_a_script_that_leaves_its_loop_early_is_told_from_one_that_has_done_its_work(
    of: int | None, reason: str
) -> None:
    stage = training("n", until_exit=True)
    stage.said("n", "finished", rank=0, of=of, **STANDING)
    exited(stage, "n", 0)
    assert [end.reason for end in ends(stage)] == [reason]


def test_others_that_end_after_the_work_are_not_missed() -> None:
    stage = training("n", "m", "o")
    finished(stage, "n", "m", "o")
    exited(stage, "m", 0)
    exited(stage, "o", -9)
    assert stage.events == []
    exited(stage, "n", 0)
    (end,) = ends(stage)
    assert (end.status, end.reason) == (TrainerStatus.COMPLETED, "its work is done")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=(), leaving=("n", "m", "o")))
    assert stage.launcher.known[1].workers == {}


@pytest.mark.parametrize(
    "order", [["m", "n finished", "n"], ["n finished", "m", "n"], ["n finished", "n", "m"]]
)
@pytest.mark.parametrize("code", [3, -11])
def test_an_error_after_the_loop_on_another_node_than_rank_0s_fails_the_trainer(
    order: list[str], code: int
) -> None:
    stage = training("n", "m")
    stage.said("m", "finished", rank=1, **STANDING)
    for what in order:
        match what:
            case "n finished":
                finished(stage, "n")
            case "m":
                exited(stage, "m", code, reason="exit code 3: ValueError: boom")
            case "n":
                exited(stage, "n", 0)
        assert not ends(stage) or what == order[-1]
    (end,) = ends(stage)
    assert end.status is TrainerStatus.FAILED
    told = "after its loop, its script failed on m: exit code 3: ValueError: boom. "
    assert end.reason.startswith(f"{told}See bftrainer logs 1 --node m. ")


@pytest.mark.parametrize("how", ["its node is gone", "it is vacated", "it is killed", "its agent stops it"])
@pytest.mark.parametrize("when", ["before rank 0 has ended", "after that"])
def test_a_node_that_is_lost_or_taken_after_the_loop_fails_no_trainer(how: str, when: str) -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    if when == "after that":
        exited(stage, "n", 0)
    match how:
        case "its node is gone":
            stage.launcher.agent_down("m")
        case "it is vacated":
            stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",), leaving=("m",)))
            exited(stage, "m", 1, "leaving")
        case "it is killed":
            exited(stage, "m", -9)
        case "its agent stops it":  # its pilot is told to end, and the daemon has not heard of it
            exited(stage, "m", 143, "leaving")
    if when != "after that":
        exited(stage, "n", 0)
    assert [end.status for end in ends(stage)] == [TrainerStatus.COMPLETED]


def test_one_that_ends_before_rank_0_has_said_that_the_work_is_done_is_not_missed_either() -> None:
    stage = training("n", "m")
    stage.said("m", "finished", rank=1, **STANDING)
    exited(stage, "m", 0)
    finished(stage, "n")
    assert stage.events == []
    exited(stage, "n", 0)
    assert len(ends(stage)) == 1


@pytest.mark.parametrize("how", ["its node is gone", "it is killed", "its agent lost it"])
def test_when_rank_0_is_lost_after_the_work_all_begin_anew_without_blame(how: str) -> None:
    stage = training("n", "m", "o")
    finished(stage, "n", "m", "o")
    exited(stage, "m", 0)
    stage.start(3, "x")
    assert stage.sent == []
    match how:
        case "its node is gone":
            stage.launcher.agent_down("n")
        case "it is killed":
            exited(stage, "n", -9)
        case "its agent lost it":
            stage.agent("n")
    assert ("o", "kill") in stage.kinds() and ("x", "start") in stage.kinds()
    exited(stage, "o", -9, reason=REPEATED)
    assert set(lost(stage)) >= {"m", "o"} and not any(lost(stage).values()) and ends(stage) == []
    assert any(isinstance(event, Resync) for event in stage.events), "a node that was to join is told again"
    stage.launcher.perform(Regroup(trainer=1, generation=4, members=("x",)))
    assert stage.sent[-1][0] == "x" and stage.sent[-1][1]["members"] == ["x"]


def test_what_was_lost_after_the_work_is_forgotten_when_all_begin_anew() -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    exited(stage, "m", 1)
    stage.launcher.agent_down("n")
    stage.start(3, "n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=4, members=("n", "m")))
    for rank, node in enumerate("nm"):
        stage.joined(node, 4, survivor=False, step=10, started=3)
        stage.said(node, "finished", 3, rank=rank, **{**STANDING, "generation": 4})
    for node in "mn":
        stage.said(node, "exited", 3, code=0, phase="finished", reason="", last={})
    assert [(end.status, end.reason) for end in ends(stage)] == [
        (TrainerStatus.COMPLETED, "its work is done")
    ]


def test_an_error_that_the_others_went_on_from_does_not_fail_the_trainer() -> None:
    stage = training("n", "m", until_exit=True)
    stage.said("m", "finished", rank=1, **STANDING)  # its loop was left by the error
    exited(stage, "m", 1)
    assert lost(stage) == {"m": True}
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",)))
    stage.joined("n", 3, survivor=True, step=4)
    stage.said("n", "finished", rank=0, **{**STANDING, "generation": 3})
    exited(stage, "n", 0)
    assert [end.status for end in ends(stage)] == [TrainerStatus.COMPLETED]


def test_one_that_ends_well_just_when_it_is_to_begin_anew_begins_anew() -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    stage.launcher.agent_down("n")
    exited(stage, "m", 0)
    assert lost(stage) == {"m": False} and ends(stage) == []


def test_what_rank_0_reports_after_the_work_counts_though_its_node_is_wanted() -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("m",), leaving=("n",)))
    stage.said("n", "metrics", size=2, **{**STANDING, "metrics": {"accuracy": 0.9}})
    exited(stage, "n", 0, "leaving")
    reported = stage.launcher.known[1].reported
    assert reported is not None and reported.metrics == {"accuracy": 0.9}


def test_what_one_reports_that_others_have_gone_on_without_does_not_count() -> None:
    stage = training("n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("m",), leaving=("n",)))
    stage.joined("m", 3, survivor=True, step=4)
    stage.said("n", "metrics", size=2, **{**STANDING, "metrics": {"accuracy": 0.1}})
    reported = stage.launcher.known[1].reported
    assert reported is None or "accuracy" not in reported.metrics


@pytest.mark.parametrize(("code", "ended"), [(0, True), (-9, False)])
def test_rank_0_whose_node_is_wanted_after_the_work_may_end_well_in_its_grace_time(
    code: int, ended: bool
) -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("m",), leaving=("n",)))
    assert stage.kinds() == [("n", "regroup")], "m has left its loop"
    exited(stage, "n", code, "leaving")
    exited(stage, "m", 0)
    assert bool(ends(stage)) is ended
    assert lost(stage) == ({} if ended else {"m": False})


def test_a_node_that_leaves_after_the_work_is_not_missed() -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",), leaving=("m",)))
    exited(stage, "m", -9, "leaving")
    assert stage.events == []
    exited(stage, "n", 0)
    assert len(ends(stage)) == 1


def test_rank_0_that_is_lost_before_it_has_said_that_the_work_is_done_leaves_nobody_behind() -> None:
    stage = training("n", "m")
    stage.said("m", "finished", rank=1, **STANDING)
    stage.launcher.agent_down("n")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("m",)))
    assert ("m", "kill") in stage.kinds()
    resyncs = [event for event in stage.events if isinstance(event, Resync)]
    stage.launcher.perform(Regroup(trainer=1, generation=4, members=("m",)))
    assert [event for event in stage.events if isinstance(event, Resync)] == resyncs, "it is told once"
    exited(stage, "m", -9, reason=REPEATED)
    assert lost(stage) == {"m": False}


@pytest.mark.parametrize("ends_at_once", [True, False])
def test_one_that_leaves_its_loop_alone_begins_anew(ends_at_once: bool) -> None:
    stage = training("n", "m", until_exit=True)
    stage.said("m", "finished", rank=1, **STANDING)
    if ends_at_once:
        exited(stage, "m", 0)
    stage.said("n", "broken", generation=2, reason="m is gone")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n", "m")))
    if not ends_at_once:
        assert ("m", "kill") in stage.kinds()
        exited(stage, "m", -9)
    assert lost(stage) == {"m": True}


def test_what_an_agent_lists_no_more_has_ended_well_before() -> None:
    stage = training("n", "m")
    finished(stage, "n", "m")
    exited(stage, "m", 0)
    stage.agent("m")  # the connection broke and came back
    assert stage.events == []


@pytest.mark.parametrize(("code", "ended"), [(0, True), (1, False)])
def test_a_daemon_that_takes_workers_over_after_the_work_waits_for_rank_0(code: int, ended: bool) -> None:
    stage = NativeStage()
    stage.launcher.add(1, SPEC, published=2, members=("n", "m"), step=10, samples=1000)
    for node in "mn":
        stage.agent(node, worker(1, "finished", 2))
    assert "after its loop on n" in stage.launcher.note(1)
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",)))
    assert stage.kinds() == []
    exited(stage, "m", 0)
    exited(stage, "n", code)
    assert bool(ends(stage)) is ended


@pytest.mark.parametrize("order", ["mn", "nm"])
def test_a_daemon_that_was_away_when_the_work_was_done_hears_how_far_it_came(order: str) -> None:
    stage = NativeStage()
    stage.launcher.add(1, SPEC, published=2, members=("n", "m"), step=3, samples=300)
    for node in order:
        stage.agent(node, worker(1, "finished", 2))
    for node in order:
        last = {"type": "finished", "rank": "nm".index(node), **STANDING}
        stage.said(node, "exited", code=0, phase="finished", reason="", last=last)
    assert len(ends(stage)) == 1
    assert stage.progress[-1].samples == STANDING["samples"]


def test_after_a_restart_rank_0_has_the_last_word_whichever_node_it_is_on() -> None:
    stage = NativeStage()
    stage.launcher.add(1, SPEC, published=2, members=("n", "m"), step=3, samples=300)
    for node in "nm":
        stage.agent(node, worker(1, "finished", 2))
    for node, rank, code in (("n", 1, 0), ("m", 0, 1)):
        last = {"type": "finished", "rank": rank, **STANDING}
        stage.said(node, "exited", code=code, phase="finished", reason="", last=last)
    assert ends(stage) == []


def test_workers_that_wait_for_no_rank_0_are_started_when_they_are_wanted() -> None:
    stage = training("n")
    finished(stage, "n")
    stage.launcher.agent_down("n")
    stage.launcher.perform(StartWorker(trainer=1, generation=3, node="m"))
    stage.agent("m")
    assert stage.kinds()[-1] == ("m", "start")


def test_a_script_that_says_it_is_in_vain_ends_its_trainer_as_failed() -> None:
    stage = training("n", "m")
    stage.said("n", "failed", generation=1, reason="an earlier membership's")
    assert ends(stage) == []
    stage.said("n", "failed", generation=2, reason="the nodes do not have the same state")
    (end,) = ends(stage)
    assert (end.status, end.reason) == (TrainerStatus.FAILED, "the nodes do not have the same state")


def test_members_wait_for_one_that_is_busy_and_no_speed_is_measured_across_it() -> None:
    stage = training("n", "m")
    for at, samples in ((1.0, 100), (2.0, 200)):
        stage.now = at
        stage.said("n", "progress", **{**STANDING, "samples": samples}, size=2, rate=None)
    stage.said("n", "busy", generation=2, seconds=300.0)
    assert [(node, m["node"], m["seconds"]) for node, m in stage.sent] == [("m", "n", 300.0)]
    stage.now = 200.0
    stage.said("n", "busy", generation=2, seconds=0.0)
    stage.said("n", "progress", **{**STANDING, "samples": 210}, size=2, rate=None)
    assert not [event for event in stage.events if isinstance(event, Measured)]


def test_a_script_that_never_reaches_the_run_fails_at_its_end_where_the_spec_asks_for_samples() -> None:
    stage = NativeStage()
    stage.start(1, "n")
    exited_at_once = {"code": 0, "phase": "starting", "reason": "", "last": {}}
    stage.said("n", "exited", 1, **exited_at_once)
    (end,) = ends(stage)
    assert end.status is TrainerStatus.FAILED
    assert end.reason.startswith("its script ended with exit code 0 on n and told of none of the ")
    assert "let it use elastic.Run" in end.reason


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (None, ""),
        (10, ""),
        (7, "its last checkpoint is of step 7, and what it did after that, up to step 10, is lost"),
        (0, "it has no checkpoint yet, and what it did after that, up to step 10, is lost"),
    ],
)
def test_what_is_lost_with_the_last_member_is_told(kept: int | None, told: str) -> None:
    stage = training("n")
    stage.said("n", "progress", size=1, rate=None, **STANDING)
    end = {"type": "progress", "size": 1, "rate": None, **STANDING}
    stage.said("n", "exited", code=-9, phase="member", reason="", last=end, kept=kept)
    (event,) = [event for event in stage.events if isinstance(event, WorkerLost)]
    assert event.reason.startswith(f"killed by signal 9; {told}" if told else "killed by signal 9; see")
    assert stage.progress[-1].saved == kept, "it may be the last that is heard of it"

    stage = training("n")
    stage.said("n", "progress", size=1, rate=None, saved=3, **STANDING)
    assert stage.progress[-1].saved == 3
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=(), leaving=("n",)))
    left = {"type": "left", **STANDING}
    stage.said("n", "exited", code=0, phase="leaving", reason="", last=left, kept=kept)
    assert stage.progress[-1].warned == ((told,) if told else ())
    assert stage.progress[-1].saved == (3 if kept is None else kept)
