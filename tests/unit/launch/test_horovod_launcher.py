"""The Horovod launcher without agents and drivers: what it tells whom, and in what order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bftrainer.launch.deadlines import PARTED_S, TimeLimits
from bftrainer.launch.horovod.launcher import HorovodLauncher
from bftrainer.launch.horovod.trainer import host_of
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import TrainerEnded, WorkerLost
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from tests.support.messages import report, to_driver
from tests.support.remembering_ports import FOLDERS, RememberingPorts
from tests.support.timers import Timers

SPEC = TrainerSpec(name="a", command=("python", "a.py"), n_min=1, n_max=4, samples=1000, launcher="horovod")


class World(RememberingPorts):
    """A launcher between ports and a driver that only remember."""

    address = "127.0.0.1"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Message] = []
        self.timers = Timers()
        self.driver: Callable[[Message], None] | None = None
        self.launcher = HorovodLauncher(
            self,
            self.events.append,
            self,
            FOLDERS,
            drivers=self,
            grace_s=9.0,
            clock=lambda: 1.0,
            limits=TimeLimits(later=self.timers.later, now=self.timers.now),
        )
        self.launcher.add(1, SPEC)

    def open(self, trainer: int, heard: Callable[[Message], None]) -> None:
        self.driver = heard

    def tell(self, trainer: int, message: Message) -> None:
        self.told.append(to_driver(message))

    def end(self, trainer: int) -> None:
        self.driver = None

    def close(self) -> None:
        pass

    def said(self, node: str, kind: str, **fields: Any) -> None:
        view = self.launcher.known.views(1)[node]
        self.launcher.reported(node, report(kind, started=view.generation, run=view.run, **fields))

    def exited(self, node: str, code: int, **last: Any) -> None:
        self.said(node, "exited", code=code, phase="member", reason="", last=last)

    def heard(self, kind: str, **fields: Any) -> None:
        assert self.driver is not None
        self.driver({"type": kind, **fields})

    def regroup(self, generation: int, *members: str, leaving: tuple[str, ...] = ()) -> None:
        self.launcher.perform(Regroup(trainer=1, generation=generation, members=members, leaving=leaving))

    def start(self, generation: int, *nodes: str) -> None:
        for node in nodes:
            self.launcher.perform(StartWorker(trainer=1, generation=generation, node=node))
            self.said(node, "ready")

    def train(self, *nodes: str) -> None:
        """Workers that generation 1 started train in generation 2."""
        self.start(1, *nodes)
        self.regroup(2, *nodes)
        self.heard("up", port=4711)
        self.form(2, *nodes)
        self.forget()

    def form(self, generation: int, *nodes: str, at: float = 5.0) -> None:
        """The driver lets workers go, and they take a step."""
        hosts = [host_of(node, self.launcher.known.views(1)[node]) for node in nodes]
        self.heard("formed", generation=generation, hosts=hosts)
        step: Message = {"step": 7, "samples": 70, "epoch": 0, "metrics": {}, "generation": 2}
        self.said(nodes[0], "resumed", size=len(nodes), at=at, **step)

    def forget(self) -> None:
        self.sent.clear()
        self.told.clear()
        self.events.clear()

    def kinds(self) -> list[tuple[str, str]]:
        found = [(node, message["type"]) for node, message in self.sent]
        self.sent.clear()
        return found


def test_single_gpus_have_names_that_horovod_can_split_at_colons() -> None:
    world = World()
    world.start(1, "n1:0", "n1:2")
    world.regroup(2, "n1:0", "n1:2")
    world.heard("up", port=4711)
    assert world.told[-1]["hosts"] == ["n1~0.1", "n1~2.1"]
    world.form(2, "n1:0", "n1:2")
    launched = world.launcher.known[1]
    assert launched.ranks == ("n1:0", "n1:2")
    assert launched.environment("n1:2", "127.0.0.1")["HOROVOD_HOSTNAME"] == "n1~2.1"


def test_hosts_have_as_many_slots_as_nodes_run_workers() -> None:
    world = World()
    world.has = {"n": 2}
    world.start(1, "n", "m")
    world.regroup(2, "n", "m")
    world.heard("up", port=4711)
    world.form(2, "n", "m")
    (told,) = (message for message in world.told if message["type"] == "world")
    assert (told["hosts"], told["slots"]) == (["n.1", "m.1"], [2, 1])
    world.forget()
    world.regroup(3, leaving=("n", "m"))
    ((node, stop),) = ((n, m) for n, m in world.sent if m["type"] == "stop")
    assert (node, stop["leader_first"]) == ("n", True)


def test_workers_go_when_the_driver_is_there() -> None:
    world = World()
    world.start(1, "n")
    world.regroup(2, "n")
    world.forget()
    world.heard("up", port=4711)
    ((node, go),) = world.sent
    assert (node, go["type"], go["run"]) == ("n", "go", 2)
    assert go["env"]["HOROVOD_HOSTNAME"] == "n.1"
    assert go["env"]["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "4711"
    assert world.told == [{"type": "world", "generation": 2, "hosts": ["n.1"]}]


def test_a_change_is_over_with_the_first_step_of_rank_0() -> None:
    world = World()
    world.train("m")
    world.start(3, "n")
    world.regroup(4, "m", "n")
    assert world.told[-1] == {"type": "world", "generation": 4, "hosts": ["m.1", "n.3"]}
    world.form(4, "m", "n", at=5.5)
    (*_, pause) = world.pauses
    assert (pause.kind, pause.node, pause.size, pause.pause_s) == ("join", "m", 2, 0.5)
    assert {n: v.joined for n, v in world.launcher.known.views(1).items()} == {"m": 4, "n": 4}


def test_a_loss_that_a_join_overtakes_is_told_as_a_loss() -> None:
    world = World()
    world.train("m", "n")
    world.exited("n", -9)
    world.regroup(3, "m")
    world.start(4, "n")
    world.regroup(5, "m", "n")
    world.form(5, "m", "n", at=6.0)
    world.start(6, "o")
    world.regroup(7, "m", "n", "o")
    world.form(7, "m", "n", "o", at=7.0)
    assert [pause.kind for pause in world.pauses[1:]] == ["loss", "join"]


def test_a_newcomer_that_dies_before_it_joins_is_no_loss() -> None:
    world = World()
    world.train("m")
    world.start(3, "n")
    world.regroup(4, "m", "n")
    world.exited("n", -9)
    world.regroup(5, "m")
    world.start(6, "n")
    world.regroup(7, "m", "n")
    world.form(7, "m", "n", at=6.0)
    assert [pause.kind for pause in world.pauses[1:]] == ["join"]


def test_a_node_that_the_scheduler_takes_before_its_agent_is_gone_is_a_loss() -> None:
    world = World()
    world.train("m", "n")
    world.regroup(3, "m")
    world.launcher.agent_down("n")
    world.form(3, "m", at=6.0)
    assert [pause.kind for pause in world.pauses[1:]] == ["loss"]


def test_rank_0_may_be_heard_before_the_driver() -> None:
    world = World()
    world.train("m")
    world.start(3, "n")
    world.regroup(4, "m", "n")
    step: Message = {"step": 7, "samples": 70, "epoch": 0, "metrics": {}, "generation": 2}
    world.said("m", "resumed", size=2, at=6.0, **step)
    assert len(world.pauses) == 1
    world.heard("formed", generation=4, hosts=["m.1", "n.3"])
    assert [p.size for p in world.pauses] == [1, 2]


def test_who_leaves_last_writes_the_state_down_before_the_others_end() -> None:
    world = World()
    world.train("m", "n")
    world.start(3, "o")
    world.forget()
    world.regroup(4, "o", leaving=("m", "n"))
    assert world.kinds() == [("m", "stop")]
    world.exited("m", 0)
    assert world.kinds() == [("n", "stop")]
    world.exited("n", -6)
    assert world.kinds() == [("o", "go")]
    assert world.told[-1]["hosts"] == ["o.3"]
    assert world.events == []


def test_a_death_while_all_connect_starts_all_anew_and_blames_nobody_else() -> None:
    world = World()
    world.train("m", "n")
    world.heard("torn", generation=2)
    assert world.kinds() == [("m", "kill"), ("n", "kill")]
    world.exited("m", -9)
    world.exited("n", -6)
    assert [(type(e), e.blame) for e in world.events if isinstance(e, WorkerLost)] == [
        (WorkerLost, False),
        (WorkerLost, False),
    ]
    assert world.driver is None


def test_newcomers_without_the_state_do_not_go_on_alone() -> None:
    world = World()
    world.train("m")
    world.start(3, "n")
    world.regroup(4, "m", "n")
    world.heard("formed", generation=4, hosts=["m.1", "n.3"])
    world.exited("m", -9)
    world.forget()
    world.regroup(5, "n")
    assert world.kinds() == [("n", "kill")]
    assert not any(message["type"] == "world" for message in world.told)


def test_who_is_started_after_a_torn_world_is_left_in_peace() -> None:
    world = World()
    world.train("m", "n")
    world.start(3, "o")
    world.heard("torn", generation=2)
    world.exited("m", -9)
    world.exited("n", -9)
    world.start(4, "m", "n")
    world.forget()
    world.heard("torn", generation=2)
    world.regroup(5, "n")
    world.regroup(6, "n", "m")
    assert world.kinds() == [("n", "go"), ("m", "go")]
    assert world.told[-1]["hosts"] == ["n.4", "m.4"]


def test_the_end_of_a_worker_that_died_before_it_was_let_run_is_heard() -> None:
    world = World()
    world.train("m")
    world.start(3, "n")
    world.regroup(4, "m", "n")
    end = report("exited", started=3, code=-9, phase="starting", reason="", last={})
    world.launcher.reported("n", end)
    assert [e.node for e in world.events if isinstance(e, WorkerLost)] == ["n"]


def test_a_membership_of_the_dead_lets_nobody_run_who_comes_after_them() -> None:
    world = World()
    world.train("m", "n")
    world.exited("m", -9)
    world.exited("n", -9)
    world.regroup(3, "n")
    world.launcher.perform(StartWorker(trainer=1, generation=4, node="n"))
    world.forget()
    world.said("n", "ready")
    world.heard("up", port=4712)
    assert world.kinds() == []
    assert len(world.events) == 1
    world.regroup(5, "n")
    assert world.kinds() == [("n", "go")]


def test_an_abort_out_of_the_blue_is_the_scripts_fault() -> None:
    world = World()
    world.train("m", "n")
    world.exited("n", -6)
    world.exited("m", -6)
    assert [e.blame for e in world.events if isinstance(e, WorkerLost)] == [True, False]


def test_exit_code_0_with_work_left_is_a_loss_and_with_the_work_done_the_end() -> None:
    world = World()
    world.train("m", "n")
    world.exited("n", 0)
    assert world.events == []
    world.exited("m", 0)
    assert {e.node for e in world.events if isinstance(e, WorkerLost)} == {"m", "n"}
    world = World()
    world.train("m", "n")
    world.exited("m", 0)
    world.exited("n", 0)
    assert {e.node for e in world.events if isinstance(e, WorkerLost)} == {"m", "n"}
    world = World()
    world.train("m", "n")
    world.exited("n", 0)
    assert world.events == []
    world.heard("asking", host="m.1")
    assert [e.node for e in world.events if isinstance(e, WorkerLost)] == ["n"]
    world = World()
    world.train("m", "n")
    world.heard("asking", host="m.1")
    world.exited("n", 0)
    assert [e.node for e in world.events if isinstance(e, WorkerLost)] == ["n"]
    world = World()
    world.train("m", "n")
    world.exited("n", 0)
    last: Message = {"step": 100, "samples": 1000, "epoch": 0, "metrics": {}, "generation": 2}
    world.said("m", "finished", **last)
    world.exited("m", 0, type="finished", **last)
    assert [type(event) for event in world.events] == [TrainerEnded]
    assert world.launcher.known.workers(1) == {}


def test_rank_0_ends_its_trainer_by_exit_code_0_alone_once_the_work_is_done() -> None:
    last: Message = {"step": 100, "samples": 1000, "epoch": 0, "metrics": {}, "generation": 2}
    world = World()
    world.train("m", "n", "o")
    world.said("m", "finished", **last)
    world.exited("o", 0)
    world.heard("lost")
    world.regroup(3, "m", "n", "o")
    assert world.kinds() == [], "rank 0 is let end"
    world.exited("n", -6)
    assert [e for e in world.events if isinstance(e, WorkerLost)] == []
    world.exited("m", 1, type="finished", **last)
    found = {e.node: e.blame for e in world.events if isinstance(e, WorkerLost)}
    assert found == {"m": True, "n": False, "o": False}
    assert not any(isinstance(e, TrainerEnded) for e in world.events)


def test_a_worker_that_hangs_when_rank_0_has_ended_well_is_killed_and_the_trainer_is_complete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    last: Message = {"step": 100, "samples": 1000, "epoch": 0, "metrics": {}, "generation": 2}
    world = World()
    world.train("m", "n", "o")
    world.said("m", "finished", **last)
    world.exited("m", 0, type="finished", **last)
    world.exited("n", 0)
    world.timers.advance(PARTED_S - 1.0)
    assert world.kinds() == [] and world.events == []
    world.timers.advance(1.0)
    assert world.kinds() == [("o", "kill")]
    assert "trainer 1: its worker on o is killed: rank 0 ended with the work done" in caplog.text
    world.exited("o", -9)
    assert [type(event) for event in world.events] == [TrainerEnded]
    assert world.launcher.known.workers(1) == {}


def test_without_its_driver_the_state_is_saved_and_all_start_anew() -> None:
    world = World()
    world.train("m", "n")
    world.heard("lost")
    assert world.kinds() == [("m", "stop")]
    world.exited("m", 0)
    assert ("n", "stop") in world.kinds()
    world.exited("n", -6)
    assert [e.blame for e in world.events if isinstance(e, WorkerLost)] == [False, False]


def test_a_driver_that_cannot_start_is_told_as_the_reason() -> None:
    world = World()
    world.start(1, "n")
    world.heard("failed", reason="is Horovod installed?")
    assert world.kinds()[-1] == ("n", "kill")
    world.exited("n", -9)
    (lost,) = [e for e in world.events if isinstance(e, WorkerLost)]
    assert lost.blame and "is Horovod installed?" in lost.reason


def test_a_trainer_that_is_forgotten_before_a_worker_was_started_leaves_no_driver() -> None:
    world = World()
    world.launcher.add(2, SPEC, published=3, members=("n",))  # found again after a restart, its node is gone
    assert world.driver is not None
    world.launcher.known.forget(2)
    assert world.driver is None


def test_those_that_take_the_state_along_find_no_place_in_a_world() -> None:
    world = World()
    world.train("m", "n")
    world.regroup(3, leaving=("m", "n"))
    assert world.told == [{"type": "world", "generation": 3, "hosts": []}], (
        "a worker that waits for a place is let go"
    )
    assert world.kinds() == [("m", "stop")]


def test_no_worker_is_sent_to_a_driver_that_was_lost() -> None:
    world = World()
    world.train("m")
    world.start(3, "n")
    world.heard("lost")
    world.forget()
    world.regroup(4, "m", "n")
    assert world.kinds() == []
    world.heard("up", port=4712)
    ((node, go),) = world.sent
    assert (node, go["env"]["HOROVOD_GLOO_RENDEZVOUS_PORT"]) == ("n", "4712")


def test_rank_0_that_has_got_its_place_says_whether_the_work_is_done() -> None:
    world = World()
    world.start(1, "m", "n")
    world.regroup(2, "m", "n")
    world.heard("up", port=4711)
    for host in ("m.1", "n.1"):
        world.heard("asking", host=host)
    world.form(2, "m", "n")
    world.forget()
    world.exited("n", 0)
    assert world.events == []


def test_the_driver_hears_that_a_node_is_gone() -> None:
    world = World()
    world.train("m", "n")
    world.launcher.agent_down("n")
    assert {"type": "gone", "host": "n.1"} in world.told
