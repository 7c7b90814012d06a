"""What workers report becomes progress, pauses and measurements; entries of a rendezvous are relayed."""

from __future__ import annotations

import pytest

from bftrainer.model.actions import Regroup
from bftrainer.model.events import Measured, Resync, WorkerLost
from bftrainer.model.reports import Message
from tests.support.native_stage import NativeStage


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


def at(step: int, **more: object) -> Message:
    """Where training stands, in generation 2."""
    return {"generation": 2, "step": step, "samples": 10 * step, "epoch": 0, "metrics": {}, **more}


def test_a_member_whose_node_is_taken_makes_the_next_pause_a_loss() -> None:
    stage = training("n", "m")
    stage.launcher.agent_down("m")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",)))
    stage.joined("n", 3, survivor=True, step=4, size=1)
    assert stage.pauses[-1].kind == "loss"


def test_a_worker_that_dies_with_its_pilot_again_and_again_has_failed() -> None:
    stage = training("n", "m")
    stage.launcher.agent_down("m", blame=True)
    (lost,) = stage.events
    assert isinstance(lost, WorkerLost) and (lost.node, lost.blame) == ("m", True)
    stage.launcher.agent_down("m")
    assert len(stage.events) == 1


def test_steps_that_nobody_reported_are_not_lost_again() -> None:
    stage = training("n", "m")
    stage.said("n", "progress", size=2, rate=1.0, **at(5))
    for generation, step in ((3, 8), (4, 7), (5, 4)):
        stage.launcher.perform(Regroup(trainer=1, generation=generation, members=("n", "m")))
        stage.joined("n", generation, survivor=True, step=step)
    assert [pause.lost_steps for pause in stage.pauses[-3:]] == [0, 0, 1]


def test_of_those_that_leave_the_furthest_counts() -> None:
    stage = training("n", "m")
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=(), leaving=("n", "m")))
    for node, step in (("n", 9), ("m", 7)):
        last = {"type": "left", **at(step)}
        stage.said(node, "exited", code=0, phase="leaving", reason="", last=last)
    assert stage.launcher.known[1].committed == 9 and stage.progress[-1].step == 9


def test_figures_are_kept_until_others_of_their_names_come() -> None:
    stage = training("n")
    stage.said("n", "progress", size=1, rate=2.0, **at(3, metrics={"loss": 0.5, "best": 0.4}))
    stage.said("n", "metrics", size=1, **at(3, metrics={"loss": 0.3, "accuracy": 0.9}))
    assert stage.progress[-1].metrics == {"loss": 0.3, "best": 0.4, "accuracy": 0.9}
    assert stage.progress[-1].rate == 2.0


def test_how_many_samples_a_script_says_there_are_is_kept() -> None:
    stage = training("n")
    stage.said("n", "progress", size=1, rate=None, **at(3, of=500))
    assert stage.progress[-1].of == 500


def test_what_a_script_was_warned_of_is_kept_and_why_it_cannot_save() -> None:
    stage = training("n")
    told = {"size": 1, "rate": None}
    stage.said("n", "progress", problem="disk full", **told, **at(3, warned=["one", "two"]))
    assert stage.progress[-1].warned == ("one", "two", "disk full")
    stage.said("n", "metrics", size=1, **at(3, warned=["two"]))
    assert stage.progress[-1].warned == ("two", "disk full"), "a report of figures does not say that it can"
    stage.said("n", "progress", problem="", **told, **at(4, warned=["two"]))
    assert stage.progress[-1].warned == ("two",)


def test_a_trainer_that_comes_no_further_than_it_was_makes_no_progress() -> None:
    stage = training("n")

    def note(now: float, step: int) -> str:
        stage.now = now
        stage.said("n", "progress", size=1, rate=None, **at(step))
        return stage.launcher.note(1)

    assert [note(1.0, 10), note(59.0, 20), note(100.0, 5)] == ["", "", ""]
    assert note(119.0, 20) == "no progress for 60 s"
    assert note(120.0, 21) == ""


def test_one_that_began_again_at_step_0_has_saved_nothing() -> None:
    stage = training("n")
    stage.said("n", "progress", size=1, rate=None, **at(5))
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",)))
    stage.joined("n", 3, survivor=False, step=0, size=1)
    stage.now += 60.0
    said = "; its last start found nothing saved, and began at step 0"
    assert stage.launcher.note(1).endswith(said)
    stage.launcher.perform(Regroup(trainer=1, generation=4, members=("n",)))
    stage.joined("n", 4, survivor=True, step=4, size=1)
    assert stage.launcher.note(1).startswith("no progress for") and said not in stage.launcher.note(1)


def test_a_trainer_whose_program_fails_again_and_again_says_why() -> None:
    """It starts, comes a step further, fails, and starts: its status alone would never say so."""
    stage = training("n")
    stage.now = 50.0
    stage.said("n", "progress", size=1, rate=None, **at(5))
    stage.said("n", "exited", code=1, phase="member", reason="exit code 1: MemoryError", last={})
    stage.now = 64.0
    assert stage.launcher.note(1) == "its program failed 14 s ago: exit code 1: MemoryError"
    stage.now = 50.0 + 600.0
    assert "failed" not in stage.launcher.note(1), "it goes on, as far as is known"


def test_a_speed_is_not_measured_across_a_pause() -> None:
    stage = training("n")

    def progress(now: float, step: int) -> None:
        stage.now = now
        stage.said("n", "progress", size=1, rate=None, **{**at(step), "generation": 3})

    progress(2.0, 1)
    stage.launcher.perform(Regroup(trainer=1, generation=3, members=("n",)))
    stage.joined("n", 3, survivor=True, step=1, size=1)
    progress(10.0, 2)  # most of this time was the pause
    progress(12.0, 42)
    assert [e.point for e in stage.events if isinstance(e, Measured) and e.point] == [(1, 200.0)]


@pytest.mark.parametrize("is_anew", [False, True])
def test_a_script_that_counts_in_leaps_or_anew_in_each_epoch_has_the_speed_that_it_has(is_anew: bool) -> None:
    """It takes 100 samples a second, and either counts them every seven seconds, or every seven seconds from
    0 on."""
    stage = training("n")
    for tick in range(1, 600):
        stage.now = tick / 2
        samples = (50 * tick) % 700 if is_anew else 50 * (tick - tick % 14)
        stage.said("n", "progress", size=1, rate=None, **at(tick, samples=samples))
    found = [e.point for e in stage.events if isinstance(e, Measured) and e.point]
    assert found and found == [(1, pytest.approx(100.0))] * len(found)


def test_a_speed_counts_for_the_membership_that_is_published() -> None:
    """An agent may say any size; so no trainer has speeds on more sizes than it has had."""
    stage = training("n", "m")

    def progress(now: float, step: int, size: int) -> None:
        stage.now = now
        stage.said("n", "progress", size=size, rate=None, **at(step))

    for second, size in enumerate((2, 3, 1, 4, 2)):
        progress(60.0 * second, 10 * second, size)
    assert [e.point for e in stage.events if isinstance(e, Measured) and e.point] == [
        (2, pytest.approx(10 / 6))
    ]


def test_an_entry_of_the_rendezvous_goes_to_the_other_members_of_its_generation() -> None:
    stage = training("n", "m", "o")
    stage.said("n", "kv", generation=2, key="k", value="v")
    entry = {"type": "kv", "trainer": 1, "generation": 2, "key": "k", "value": "v"}
    assert stage.sent == [("m", entry), ("o", entry)]
    stage.sent.clear()
    for other in (1, 3):
        stage.said("n", "kv", generation=other, key="k", value="v")
    assert stage.sent == []


def test_a_generation_that_broke_is_published_again_once_however_many_members_say_so() -> None:
    stage = training("n", "m")
    stage.said("n", "broken", generation=1, reason="an earlier one")
    assert stage.events == []
    stage.said("n", "broken", generation=2, reason="timed out")
    stage.said("m", "broken", generation=2, reason="timed out")
    assert [(type(event), event.time) for event in stage.events] == [(Resync, 2.0)]
