"""The script of the demonstration: orders come one after the other, each after its cause has been seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bftrainer.demo.acts import JobLine, KillPilot, Order, Play, Scene, curtain, script

NODES = ("n1", "n2", "n3", "n4")


class Stage:
    """A daemon as the script sees it: orders have their effect at once, and each rescale one pause."""

    def __init__(self) -> None:
        self.jobs: dict[str, frozenset[str]] = {}
        self.members = frozenset[str]()
        self.rescales: list[dict[str, Any]] = []
        self.at = 0.0
        self.perform(curtain(NODES))
        self.settle()

    def perform(self, orders: tuple[Order, ...]) -> None:
        for order in orders:
            match order:
                case KillPilot(node=node):
                    self.change(self.members - {node}, "loss")
                case JobLine(text=text):
                    how, name, *nodes = text.split()
                    if how == "end":
                        del self.jobs[name]
                    else:
                        self.jobs[name] = frozenset(nodes)

    @property
    def busy(self) -> frozenset[str]:
        return frozenset[str]().union(*self.jobs.values())

    def settle(self) -> None:
        """Let the trainer have what is idle."""
        idle = frozenset(NODES) - self.busy
        if idle == self.members:
            return
        if not idle & self.members:
            self.change(idle, "restart", lost=7 if self.rescales else 0)
        else:
            self.change(idle, "join" if idle - self.members else "leave")

    def change(self, members: frozenset[str], kind: str, lost: int = 0) -> None:
        self.members = members
        if members:
            generation = len(self.rescales)
            row = {"generation": generation, "kind": kind, "size": len(members)}
            self.rescales.append({**row, "pause_s": 0.05, "lost_steps": lost})

    def scene(self) -> Scene:
        return Scene(
            at=self.at,
            members=self.members,
            busy=self.busy,
            step=100,
            samples=1000,
            rate=100.0,
            rescales=tuple(self.rescales),
            waits={"main-job": 0.4},
        )


def test_the_acts_lead_to_eight_rescales_and_tell_each_cause_and_result() -> None:
    stage, play, told = Stage(), Play(script(NODES, "t")), []
    for _ in range(200):
        play, orders, said = play.follow(stage.scene())
        stage.perform(orders)
        told += said
        if not orders:
            stage.settle()
        stage.at += 0.3
        if play.over:
            break
    assert play.over and play.left == ()
    kinds = [r["kind"] for r in stage.rescales]
    assert kinds == [
        *("restart", "join", "join", "join"),
        *("leave", "join"),
        *("loss", "join"),
        *("restart", "join"),
    ]
    assert [t.act for t in told] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    texts = [t.text for t in told]
    assert "from 1 to 4 nodes in 3 steps" in texts[2] and "50 ms at most" in texts[2]
    assert "started after 0.4 s" in texts[4] and "no step lost" in texts[4]
    assert "no step lost" in texts[6]
    assert "trains 7 steps again, 0.7 s of work" in texts[9]


def test_no_act_begins_before_its_forerunner_has_been_seen() -> None:
    stage, play = Stage(), Play(script(NODES, "t"))
    stage.members = frozenset()
    play, orders, said = play.follow(stage.scene())
    assert said and not orders, "the daemon starts"
    for _ in range(50):
        stage.at += 10.0
        play, orders, said = play.follow(stage.scene())
        assert not orders and not said, "nothing trains yet"
    assert play.left[0] == "before"


def test_a_step_that_a_survivor_lost_is_said() -> None:
    (_, _, _, dies, _) = script(NODES, "t")
    told = dies.beats[0].told
    first = Stage().scene()
    row = {"generation": 9, "kind": "loss", "size": 3, "pause_s": 0.1, "lost_steps": 3}
    assert told is not None and "3 steps lost" in told(first, replace(first, rescales=(row,)))


def test_two_nodes_are_enough_and_of_more_than_four_the_others_stay_busy() -> None:
    lines = [line.text for line in curtain(("a", "b", "c", "d", "e", "f"))]
    assert lines == ["take job-b b", "take job-c c", "take job-d d", "take job-others e f"]
    assert [line.text for line in curtain(("a", "b"))] == ["take job-b b"]
    assert len(script(("a", "b"), "t")[1].beats) == 1
