"""The native launcher without agents: what it sends, and whom it believes."""

from __future__ import annotations

import pytest

from bftrainer.model.actions import Regroup, StartWorker, StopWorker
from bftrainer.model.events import Measured, Resync, TrainerEnded, WorkerLost, WorkersReady
from tests.support.messages import worker
from tests.support.native_stage import NativeStage


def test_a_start_waits_for_its_agent() -> None:
    world = NativeStage()
    world.launcher.perform(StartWorker(trainer=1, generation=1, node="n"))
    assert world.sent == [] and world.launcher.known.workers(1) == {}
    world.agent("n")
    assert world.kinds() == [("n", "start")] and world.launcher.known.workers(1) == {"n": "starting"}


def test_what_another_users_agent_says_of_a_trainer_is_not_heard() -> None:
    world = NativeStage()
    world.start(1, "n")
    world.up.discard("n")  # the pilot that serves the trainer is gone; another user's has its node
    world.said("n", "ready")
    world.said("n", "finished", generation=1, step=9, samples=1000, epoch=0, size=1, metrics={})
    assert world.events == [] and world.launcher.known.workers(1) == {"n": "starting"}
    world.up.add("n")
    world.said("n", "ready")
    assert [type(event) for event in world.events] == [WorkersReady]


def test_a_start_that_nobody_wants_any_more_is_never_sent() -> None:
    world = NativeStage()
    world.launcher.perform(StartWorker(trainer=1, generation=1, node="n"))
    world.agent("n", wanted=set())  # the node left and came back; the trainer was cancelled meanwhile
    assert world.kinds() == []
    world.launcher.perform(StartWorker(trainer=1, generation=3, node="m"))
    world.launcher.agent_down("m")
    world.agent("m")
    assert world.kinds() == []


def test_strangers_are_stopped_and_what_should_run_is_taken_over() -> None:
    world = NativeStage()
    world.agent("n", worker(1, "member", 2), worker(4, "member", 9, trainer=7))
    assert world.kinds() == [("n", "stop")] and world.sent[0][1]["trainer"] == 7
    assert world.launcher.known.workers(1) == {"n": "member"}


def test_a_connection_that_comes_back_tells_what_was_not_heard() -> None:
    world = NativeStage()
    world.start(1, "n", "m")
    world.agent("n", worker(1, "ready"))
    assert world.events == [WorkersReady(time=1.0, trainer=1, generation=1, nodes=frozenset("n"))]
    world.said("m", "ready")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n", "m")))
    world.events.clear()
    world.agent("n", worker(1, "member", 1))
    assert world.events == [Resync(time=1.0, trainer=1, generation=2)]
    world.events.clear()
    world.agent("m", worker(1, "ready"))  # a newcomer may have missed that it is a member
    assert world.events == [Resync(time=1.0, trainer=1, generation=2)]
    world.events.clear()
    world.agent("m")
    assert [type(e) for e in world.events] == [WorkerLost]


def test_who_was_replaced_is_not_heard() -> None:
    world = NativeStage()
    world.start(1, "n")
    world.start(3, "n")
    world.said("n", "ready", started=1)
    world.said("n", "exited", started=1, code=1, phase="starting", reason="", last={})
    assert world.events == []
    world.said("n", "ready", started=3)
    assert len(world.events) == 1


@pytest.mark.parametrize(("code", "blame"), [(1, True), (0, True), (-11, True), (-9, False)])
def test_a_death_is_blamed_on_the_program_if_it_ended_by_itself(code: int, blame: bool) -> None:
    world = NativeStage()
    world.start(1, "n")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n",)))
    world.joined("n", 2, survivor=False, step=0, size=1)
    world.events.clear()
    world.said("n", "exited", code=code, phase="member", reason="", last={})
    (event,) = world.events
    assert isinstance(event, WorkerLost) and event.blame is blame


def test_a_node_is_busy_until_its_worker_has_written_down_what_it_had_or_is_gone() -> None:
    world = NativeStage()
    world.start(1, "m", "n")
    assert world.launcher.known.busy("n") and not world.launcher.known.busy("x")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("m", "n")))
    world.launcher.perform(Regroup(trainer=1, generation=3, members=("m",), leaving=("n",)))
    world.said("n", "progress", generation=2, step=3, samples=9, epoch=0, size=2, metrics={}, rate=1.0)
    assert world.launcher.known.busy("n")
    world.said("n", "left", generation=2, step=3, samples=9, epoch=0, size=2, metrics={})
    assert not world.launcher.known.busy("n") and world.launcher.known.workers(1)["n"] == "leaving"
    world.start(4, "x")
    assert world.launcher.known.busy("x")
    world.launcher.perform(StopWorker(trainer=1, generation=5, node="x"))  # it was no member yet
    assert not world.launcher.known.busy("x")


def test_the_order_to_leave_is_no_death() -> None:
    world = NativeStage()
    world.start(1, "n")
    world.launcher.perform(StopWorker(trainer=1, generation=2, node="n"))
    world.said("n", "exited", code=-9, phase="leaving", reason="", last={})
    assert world.events == [] and world.launcher.known.workers(1) == {}


def test_a_finished_trainer_ends_when_its_last_member_is_gone() -> None:
    world = NativeStage()
    world.start(1, "n", "m")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n", "m")))
    for node in "nm":
        world.joined(node, 2, survivor=False, step=0)
    last = {"generation": 2, "step": 10, "samples": 1000, "epoch": 1, "metrics": {}}
    for rank, node in enumerate("nm"):
        world.said(node, "finished", rank=rank, **last)
    world.events.clear()
    world.said("n", "exited", code=0, phase="finished", reason="", last={})
    assert world.events == []
    world.launcher.agent_down("m")
    assert [(type(e), e.generation) for e in world.events if isinstance(e, TrainerEnded)] == [
        (TrainerEnded, 2)
    ]


def test_a_restart_from_a_checkpoint_is_no_loss_of_the_survivors() -> None:
    world = NativeStage()
    world.start(1, "n")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n",)))
    world.joined("n", 2, survivor=False, step=0, size=1)
    progress = {"generation": 2, "size": 1, "samples": 500, "epoch": 0, "rate": 1.0, "metrics": {}}
    world.said("n", "progress", step=50, **progress)
    world.launcher.agent_down("n")
    world.agent("n")
    world.start(3, "n", "m")
    world.launcher.perform(Regroup(trainer=1, generation=4, members=("n", "m")))
    for node in "nm":
        world.joined(node, 4, survivor=False, step=20, started=3)
    restarts = [p for p in world.pauses if p.generation == 4]
    assert [(p.kind, p.lost_steps) for p in restarts] == [("restart", 30), ("restart", 0)]
    world.start(5, "o")
    world.launcher.perform(Regroup(trainer=1, generation=6, members=("n", "m", "o")))
    world.joined("n", 6, survivor=True, step=25, size=3, started=3)
    assert (world.pauses[-1].kind, world.pauses[-1].lost_steps) == ("join", 0)


def test_old_generations_report_no_progress() -> None:
    world = NativeStage()
    world.start(1, "n")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n",)))
    world.joined("n", 2, survivor=False, step=0, size=1)
    before = len(world.events)
    world.said("n", "progress", generation=1, size=1, step=9, samples=90, epoch=0, rate=1.0, metrics={})
    assert world.launcher.known.views(1)["n"].joined == 2 and len(world.events) == before


def handing_over() -> NativeStage:
    """`n` leaves with the state, and `m`, which has none, is to wait until it is written."""
    world = NativeStage()
    world.start(1, "n")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n",)))
    world.joined("n", 2, survivor=False, step=0, size=1)
    world.start(3, "m")
    world.said("m", "ready", started=3)
    world.sent.clear()
    world.launcher.perform(Regroup(trainer=1, generation=4, members=("m",), leaving=("n",)))
    assert published(world) == [("n", [])]
    return world


def published(world: NativeStage) -> list[tuple[str, list[str]]]:
    """Node and members of what has been published since this was asked last."""
    found = [(node, m["members"]) for node, m in world.sent if m["type"] == "regroup"]
    world.sent.clear()
    return found


LAST = {"type": "left", "generation": 2, "step": 7, "samples": 70, "epoch": 0, "metrics": {}}


def test_who_knows_the_state_writes_it_down_before_strangers_take_over() -> None:
    world = handing_over()
    world.said("n", "exited", code=0, phase="leaving", reason="", last=LAST)
    assert published(world) == [("m", ["m"])]


def test_another_membership_waits_for_the_state_as_well() -> None:
    world = handing_over()
    world.launcher.perform(Regroup(trainer=1, generation=5, members=("m",)))
    assert published(world) == []
    world.said("n", "exited", code=0, phase="leaving", reason="", last=LAST)
    assert published(world) == [("m", ["m"])]


def test_nobody_waits_for_a_worker_of_which_no_end_will_be_heard() -> None:
    """Its agent comes back where the trainer has no node any more, or its replacement is called off."""
    world = handing_over()
    world.agent("n", worker(1, "leaving", 2), wanted=set())
    assert published(world) == [("m", ["m"])]
    world = handing_over()
    world.up.discard("n")  # its pilot is gone; a next one is to come
    world.launcher.perform(StartWorker(trainer=1, generation=5, node="n"))
    world.said("n", "exited", code=0, phase="leaving", reason="", last=LAST)
    assert published(world) == []
    world.launcher.perform(StopWorker(trainer=1, generation=6, node="n"))
    assert published(world) == [("m", ["m"])]


def test_who_stays_silent_when_a_broken_membership_is_tried_again_is_killed() -> None:
    world = NativeStage()
    world.start(1, "n", "m")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n", "m")))
    for node in "nm":
        world.joined(node, 2, survivor=False, step=0)
    world.said("n", "broken", generation=2, reason="timed out")
    assert isinstance(world.events[-1], Resync)
    world.launcher.perform(Regroup(trainer=1, generation=3, members=("n", "m")))
    assert ("m", "kill") not in world.kinds()
    world.said("m", "kv", generation=3, key="rank 1", value="")  # a thread, while the script hangs
    world.said("n", "broken", generation=3, reason="m did not come")
    world.launcher.perform(Regroup(trainer=1, generation=4, members=("n", "m")))
    assert ("m", "kill") in world.kinds() and ("n", "kill") not in world.kinds()
    world.said("m", "exited", code=-9, phase="member", reason="it hung", last={})
    assert isinstance(world.events[-1], WorkerLost) and "it hung" in world.events[-1].reason


def test_a_speed_is_not_measured_across_a_newcomers_first_share() -> None:
    world = NativeStage()
    world.start(1, "n", "m")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n", "m")))
    world.joined("n", 2, survivor=False, step=0)
    world.joined("m", 2, survivor=False, step=0)

    def progress(now: float, samples: int, size: int) -> None:
        world.now = now
        told = {"generation": 2, "size": size, "step": samples // 10, "samples": samples, "epoch": 0}
        world.said("n", "progress", rate=None, metrics={}, **told)

    progress(2.0, 100, 1)
    progress(3.0, 200, 1)
    world.said("m", "caught_up", generation=2, step=20, bytes=10**7, seconds=1.5)
    for second in range(4):
        progress(4.0 + second, 200 + 200 * second, 2)
    points = [event.point for event in world.events if isinstance(event, Measured)]
    assert points == [(2, 200.0)]
