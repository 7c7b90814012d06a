"""The torchrun launcher without agents: from one run to the next, in the right order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.launch.deadlines import TimeLimits
from bftrainer.launch.reports import MAX_PAUSES
from bftrainer.launch.torchrun.launcher import TorchrunLauncher
from bftrainer.launch.torchrun.runs import Runs
from bftrainer.launch.torchrun.stores import StoreHost, Wanted
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import Lasted, Resync, TrainerEnded, WorkerLost, WorkersReady
from bftrainer.model.reports import Message, PauseKind
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.wire.messages.from_agent import Running
from tests.support.messages import report, worker
from tests.support.remembering_ports import FOLDERS, RememberingPorts

SPEC = TrainerSpec(name="a", command=("python", "a.py"), n_min=1, n_max=4, samples=1000, launcher="torchrun")


NOT_LONG = (
    "its script was started 5 times, for 18 s at the longest, and tells of no progress. If it saves "
    "less often, say so in the spec (checkpoint.interval_s), or save when SIGTERM comes "
    "(bftrainer explain BFT-508)"
)


class World(RememberingPorts):
    """A launcher between ports and stores that only remember."""

    address = "127.0.0.1"

    def __init__(self, spec: TrainerSpec = SPEC, **options: Any) -> None:
        super().__init__()
        self.now = 1.0
        self.opened: list[Callable[[int], None]] = []
        self.lost: list[Callable[[str], None]] = []
        self.ended: list[int] = []
        self.is_used: bool | None = True
        options.setdefault("limits", TimeLimits(later=lambda *_: None))
        self.launcher = TorchrunLauncher(
            self,
            self.events.append,
            self,
            FOLDERS,
            stores=self,
            grace_s=9.0,
            clock=lambda: self.now,
            **options,
        )
        self.launcher.add(1, spec)

    def prepare(self) -> None:
        pass

    def close(self) -> None:
        pass

    def open(
        self, trainer: int, run: int, opened: Callable[[int], None], lost: Callable[[str], None]
    ) -> None:
        self.opened.append(opened)
        self.lost.append(lost)

    def used(self, trainer: int, run: int, answered: Callable[[bool | None], None]) -> None:
        answered(self.is_used)

    def end(self, trainer: int) -> None:
        self.ended.append(trainer)

    def regroup(self, generation: int, *members: str, leaving: tuple[str, ...] = ()) -> None:
        action = Regroup(trainer=1, generation=generation, members=members, leaving=leaving)
        self.launcher.perform(action)
        if members:
            self.opened[-1](4000 + generation)

    def begin(self, *nodes: str, attached: bool = True) -> None:
        """Workers that generation 1 started are members of generation 2; rank 0 has called `attach`."""
        for node in nodes:
            self.launcher.perform(StartWorker(trainer=1, generation=1, node=node))
            self.said(node, "ready")
        self.regroup(2, *nodes)
        if attached:
            self.said(nodes[0], "attached", 2)
        self.sent.clear()
        self.events.clear()

    def said(self, node: str, kind: str, run: int = 0, **fields: Any) -> None:
        self.launcher.reported(node, report(kind, run=run, **fields))

    def exited(self, node: str, run: int, code: int = 0, **last: Any) -> None:
        self.said(node, "exited", run, code=code, phase="member", reason="", last=last)

    def new(self) -> list[tuple[str, str]]:
        """What has been sent since the last look."""
        kinds = [(node, message["type"]) for node, message in self.sent]
        self.sent.clear()
        return kinds


def left(run: int, step: int) -> Message:
    return {
        "type": "left",
        "generation": run,
        "step": step,
        "samples": step * 10,
        "epoch": 0,
        "at": 5.0,
        "metrics": {},
    }


def test_a_run_begins_when_its_store_is_there() -> None:
    world = World()
    world.launcher.perform(StartWorker(trainer=1, generation=1, node="n"))
    assert world.sent[-1][1]["gated"]
    world.said("n", "ready")
    assert [type(e) for e in world.events] == [WorkersReady]
    world.new()
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n",)))
    assert world.new() == []
    world.opened[-1](4711)
    ((node, go),) = world.sent
    assert (node, go["type"], go["run"]) == ("n", "go", 2)
    env = go["env"]
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_PORT"]) == ("0", "1", "4711")


def test_rank_0_stops_first_then_the_others_then_the_next_run_begins() -> None:
    world = World()
    world.begin("n", "m")
    world.launcher.perform(StartWorker(trainer=1, generation=1, node="o"))
    world.said("o", "ready")
    world.new()
    world.regroup(4, "n", "m", "o")
    assert world.new() == [("n", "stop")]
    world.exited("n", 2, **left(2, 30))
    assert world.new() == [("m", "stop")]
    world.exited("m", 2, code=-15)
    assert world.new() == [("n", "start"), ("m", "start"), ("n", "go"), ("m", "go"), ("o", "go")]
    assert [type(e) for e in world.events] == [WorkersReady], "nobody was lost"
    resumed = {"generation": 4, "size": 3, "step": 30, "samples": 300, "at": 7.5, "pause_s": None}
    world.said("n", "resumed", 4, **resumed)
    (pause,) = world.pauses
    assert (pause.kind, pause.pause_s, pause.lost_steps, pause.size) == ("join", 2.5, 0, 3)


def test_ranks_follow_nodes_that_run_several_processes() -> None:
    world = World()
    world.has = {"n": 2, "m": 3}
    world.begin("n", "m")
    world.regroup(4, "n", "m")
    ((node, stop),) = world.sent
    assert (node, stop["leader_first"]) == ("n", True), "rank 0 alone, and then the others of its node"
    world.exited("n", 2, **left(2, 30))
    assert "leader_first" not in world.sent[-1][1]
    world.exited("m", 2, code=-15)
    first, second = (message for _, message in world.sent if message["type"] == "go")
    assert [env["RANK"] for env in (*first["each"], *second["each"])] == ["0", "1", "2", "3", "4"]
    assert [env["LOCAL_RANK"] for env in second["each"]] == ["0", "1", "2"]
    assert (second["env"]["GROUP_RANK"], second["env"]["LOCAL_WORLD_SIZE"]) == ("1", "3")


def test_a_script_that_has_not_attached_is_told_on_all_ranks_at_once() -> None:
    world = World()
    world.begin("n", "m", attached=False)
    world.regroup(4, "n", "m")
    assert [(n, m["type"], m["grace_s"]) for n, m in world.sent] == [("n", "stop", 9.0), ("m", "stop", 9.0)]
    world.sent.clear()
    world.exited("m", 2, code=-15)
    assert world.new() == []
    world.exited("n", 2, code=1)  # its peer has gone
    assert world.new() == [("n", "start"), ("m", "start"), ("n", "go"), ("m", "go")]
    assert world.events == [], "nobody was lost"


@pytest.mark.parametrize(
    ("stop_signal", "attached", "told"),
    [("all", True, ["n", "m"]), ("rank_0", False, ["n"]), ("", True, ["n"]), ("", False, ["n", "m"])],
)
def test_the_spec_says_which_ranks_are_told(stop_signal: str, attached: bool, told: list[str]) -> None:
    world = World(replace(SPEC, stop_signal=stop_signal))
    world.begin("n", "m", attached=attached)
    world.regroup(3, leaving=("n", "m"))
    assert world.new() == [(node, "stop") for node in told]


def test_a_script_that_has_told_of_progress_to_an_earlier_daemon_has_attached() -> None:
    world = World()
    world.launcher.add(1, SPEC, published=2, members=("n", "m"), samples=10)
    for node in ("n", "m"):
        world.launcher.agent_up(node, [worker(1, "member", 2).model_copy(update={"run": 2})], {1})
    world.sent.clear()
    world.regroup(3, "n", "m")
    assert world.new() == [("n", "stop")]


def test_a_run_that_has_lasted_as_long_as_checkpoints_are_apart_is_told_once() -> None:
    later: list[tuple[float, Callable[[], None]]] = []
    limits = TimeLimits(later=lambda delay_s, do: later.append((delay_s, do)))
    world = World(replace(SPEC, checkpoint_interval_s=40.0), limits=limits)
    world.begin("n")
    world.regroup(3, "n")
    world.exited("n", 2)
    assert [delay_s for delay_s, _ in later] == [40.0, 40.0]
    for _, tell in later:
        tell()
    assert world.events == [Lasted(time=1.0, trainer=1, generation=3)], "only the present one"


def test_the_user_is_told_of_a_script_that_is_started_again_and_again_and_tells_of_no_progress() -> None:
    world = World(replace(SPEC, samples=None))
    world.begin("n", attached=False)
    for run in range(2, 7):
        world.now += 18.0
        assert world.launcher.note(1) == ("" if run < 6 else NOT_LONG)
        world.regroup(run + 1, "n")
        world.exited("n", run)
    world.now += 60.0
    assert world.launcher.note(1) == "", "there was time for a checkpoint"


def test_one_that_says_how_often_it_saves_is_told_that_it_was_stopped_before() -> None:
    limits = TimeLimits(later=lambda *_: None)
    world = World(replace(SPEC, checkpoint_interval_s=20.0), limits=limits)
    world.begin("n", attached=False)
    for run in range(2, 7):
        world.now += 18.0
        world.regroup(run + 1, "n")
        world.exited("n", run)
    assert "each time for less than checkpoint.interval_s (20 s)" in world.launcher.note(1)
    world.now += 20.0
    assert world.launcher.note(1) == "", "there was time for a checkpoint"


def test_two_changes_at_once_are_one_restart() -> None:
    world = World()
    world.begin("n", "m")
    world.regroup(4, "n", "m")
    world.regroup(5, "n", leaving=("m",))
    assert world.new() == [("n", "stop")]
    world.exited("n", 2)
    assert world.new() == [("m", "stop")]
    world.exited("m", 2)
    assert world.new() == [("n", "start"), ("n", "go")]
    assert set(world.launcher.known.workers(1)) == {"n"}


def test_who_dies_takes_the_run_along_but_only_one_is_lost() -> None:
    world = World()
    world.begin("n", "m")
    world.exited("m", 2, code=1)
    (event,) = world.events
    assert isinstance(event, WorkerLost) and event.node == "m" and event.blame
    assert world.new() == [("n", "stop")]
    world.exited("n", 2, code=1)
    assert len(world.events) == 1, "it could not go on alone"
    world.regroup(3, "n")
    assert world.new() == [("n", "start"), ("n", "go")]


def test_who_dies_warm_just_as_the_run_begins_is_lost() -> None:
    world = World()
    world.begin("n", "m")
    world.exited("m", 0, code=-9)
    assert [type(e) for e in world.events] == [WorkerLost]
    assert world.new() == [("n", "stop")]


def test_a_lost_node_takes_the_run_along() -> None:
    world = World()
    world.begin("n", "m")
    world.launcher.agent_down("n")
    assert world.new() == [("m", "stop")]
    world.exited("m", 2, code=1)
    assert world.events == []
    world.regroup(3, "m")
    assert world.new() == [("m", "start"), ("m", "go")]


def test_the_work_is_done_when_rank_0_says_so_and_all_are_gone() -> None:
    world = World()
    world.begin("n", "m")
    world.exited("m", 2)
    assert world.events == []
    finished = {"generation": 2, "step": 100, "samples": 1000, "epoch": 0, "metrics": {}, "at": 9.0}
    world.said("n", "finished", 2, **finished)
    world.exited("n", 2, type="finished", **finished)
    assert [type(e) for e in world.events] == [TrainerEnded]


FINISHED = {"generation": 2, "step": 100, "samples": 1000, "epoch": 0, "metrics": {}, "at": 9.0}


def test_an_exit_code_other_than_0_after_the_work_is_a_failure() -> None:
    world = World()
    world.begin("n", "m")
    world.said("n", "finished", 2, **FINISHED)
    world.exited("n", 2, code=3, type="finished", **FINISHED)
    (event,) = world.events
    assert isinstance(event, WorkerLost) and event.node == "n" and event.blame
    assert world.new() == [("m", "stop")]
    world.exited("m", 2, code=-15)
    world.regroup(3, "m")
    assert world.new() == [("m", "start"), ("m", "go")]


def test_rank_0_runs_what_comes_after_the_work_whatever_happens_to_the_others() -> None:
    world = World()
    world.begin("n", "m", "o")
    world.said("n", "finished", 2, **FINISHED)
    world.exited("m", 2, code=1)
    world.launcher.perform(StartWorker(trainer=1, generation=3, node="x"))
    world.launcher.perform(Regroup(trainer=1, generation=4, members=("n", "m"), leaving=("o",)))
    world.opened[-1](4004)
    assert world.events == [] and world.new() == [("o", "stop")]
    world.exited("o", 2, code=-15)
    assert world.new() == []
    world.exited("n", 2, type="finished", **FINISHED)
    assert [type(e) for e in world.events] == [TrainerEnded]


def test_rank_0_whose_node_is_wanted_after_the_work_may_end_well_in_its_grace_time() -> None:
    for code, ended in ((0, True), (-9, False)):
        world = World()
        world.begin("n", "m")
        world.said("n", "finished", 2, **FINISHED)
        world.regroup(3, "m", leaving=("n",))
        assert world.new() == [("n", "stop")]
        world.exited("n", 2, code=code, type="finished", **FINISHED)
        assert world.new() == [("m", "stop")]
        world.exited("m", 2, code=-15)
        assert any(isinstance(e, TrainerEnded) for e in world.events) is ended
        assert world.new() == ([] if ended else [("m", "start"), ("m", "go")])


def test_rank_0_that_was_told_to_stop_when_its_work_was_just_done_may_end_well() -> None:
    for code, ended in ((0, True), (1, False)):
        world = World()
        world.begin("n", "m")
        world.regroup(3, "m", "n")
        assert ("n", "stop") in world.new()
        world.said("n", "finished", 2, **FINISHED)
        world.exited("n", 2, code=code, type="finished", **FINISHED)
        world.exited("m", 2, code=-15)
        assert any(isinstance(e, TrainerEnded) for e in world.events) is ended
        assert (("n", "go") in world.new()) is not ended


def test_rank_0_that_ends_with_work_left_is_to_blame() -> None:
    world = World()
    world.begin("n", "m")
    world.exited("n", 2)
    (event,) = world.events
    assert isinstance(event, WorkerLost) and event.blame and "0 of 1000" in event.reason


def test_without_an_amount_of_work_all_must_end_by_themselves() -> None:
    world = World(TrainerSpec(name="a", command=("python", "a.py"), n_min=1, n_max=2, launcher="torchrun"))
    world.begin("n", "m")
    world.exited("n", 2)
    assert world.events == []
    world.exited("m", 2)
    assert [type(e) for e in world.events] == [TrainerEnded]


def until_exit() -> World:
    world = World(TrainerSpec(name="a", command=("python", "a.py"), n_min=1, n_max=4, launcher="torchrun"))
    world.begin("n", "m")
    world.exited("n", 2)
    return world


def test_without_an_amount_of_work_the_others_are_let_end_when_rank_0_has() -> None:
    world = until_exit()
    world.launcher.perform(StartWorker(trainer=1, generation=3, node="o"))
    world.said("o", "ready")
    world.new()
    world.events.clear()
    world.regroup(4, "n", "m", "o")
    assert world.new() == [] and world.events == []
    world.exited("m", 2)
    assert [type(e) for e in world.events] == [TrainerEnded]


def test_a_node_that_leaves_when_rank_0_has_ended_well_is_not_missed() -> None:
    world = until_exit()
    world.regroup(3, "n", leaving=("m",))
    assert world.new() == [("m", "stop")]
    world.exited("m", 2, code=-15)
    assert [type(e) for e in world.events] == [TrainerEnded]


def test_a_node_that_is_lost_may_be_why_rank_0_has_ended_well() -> None:
    world = until_exit()
    world.launcher.agent_down("m")
    assert world.events == []
    world.regroup(3, "n")
    assert world.new() == [("n", "start"), ("n", "go")]


def test_a_process_that_fails_when_rank_0_has_ended_well_has_all_begin_anew() -> None:
    world = until_exit()
    world.exited("m", 2, code=1)
    assert [type(e) for e in world.events] == [WorkerLost]
    world.regroup(3, "n")
    assert world.new() == [("n", "start"), ("n", "go")]


def test_cancel_lets_rank_0_write_its_checkpoint() -> None:
    world = World()
    world.begin("n", "m")
    world.regroup(3, leaving=("n", "m"))
    assert world.new() == [("n", "stop")]
    world.exited("n", 2, **left(2, 30))
    assert world.new() == [("m", "stop")]
    world.exited("m", 2)
    assert world.launcher.known.workers(1) == {} and world.events == []


def test_who_has_ended_already_has_left_when_the_trainer_is_over() -> None:
    world = World()
    world.begin("a", "b")
    world.exited("b", 2)
    world.exited("a", 2, **{**left(2, 100), "type": "finished"})
    assert isinstance(world.events[-1], TrainerEnded)
    world.regroup(3, leaving=("a", "b"))
    assert world.launcher.known.workers(1) == {}


def test_a_member_of_a_run_that_never_began_is_told_to_leave() -> None:
    world = World()
    world.begin("a")
    world.launcher.perform(StartWorker(trainer=1, generation=1, node="b"))
    world.said("b", "ready")
    world.regroup(3, "a", "b")
    world.sent.clear()
    world.regroup(4, "a", leaving=("b",))
    assert ("b", "stop") in world.new()
    world.exited("b", 0)
    assert set(world.launcher.known.workers(1)) == {"a"}


def test_a_run_goes_on_when_a_node_is_lost_that_was_only_to_join() -> None:
    world = World()
    world.begin("a")
    world.launcher.perform(StartWorker(trainer=1, generation=3, node="b"))
    world.sent.clear()
    world.launcher.agent_down("b")
    assert world.new() == []
    assert world.launcher.known.workers(1) == {"a": "member"}


def test_the_store_of_a_run_that_was_overtaken_is_not_used() -> None:
    world = World()
    for node in ("n", "m"):
        world.launcher.perform(StartWorker(trainer=1, generation=1, node=node))
        world.said(node, "ready")
    world.launcher.perform(Regroup(trainer=1, generation=2, members=("n",)))
    world.launcher.perform(Regroup(trainer=1, generation=3, members=("n", "m")))
    world.sent.clear()
    early, present = world.opened
    early(4002)
    assert world.sent == []
    present(4003)
    assert {(m["run"], m["env"]["MASTER_PORT"]) for _, m in world.sent} == {(3, "4003")}


def test_an_exit_of_an_earlier_run_is_not_heard() -> None:
    world = World()
    world.begin("n", "m")
    world.exited("m", 1, code=1)
    assert world.events == [] and world.launcher.known.workers(1) == {"n": "member", "m": "member"}


def test_every_run_tells_the_processes_of_the_one_before_to_stop() -> None:
    world = World()
    world.begin("n", "m")
    for run in (2, 3):
        world.regroup(run + 1, "n", "m")
        assert world.new() == [("n", "stop")]
        world.exited("n", run, **left(run, 10 * run))
        assert world.new() == [("m", "stop")]
        world.exited("m", run)
        assert world.new() == [("n", "start"), ("m", "start"), ("n", "go"), ("m", "go")]


def test_the_engine_decides_anew_when_a_process_has_missed_its_start() -> None:
    world = World()
    world.begin("n", "m")  # the connection to the agent of m broke before its `go` arrived
    world.launcher.agent_up("m", [worker(1, "ready")], {1})
    assert world.events == [Resync(time=world.events[0].time, trainer=1, generation=2)]


def test_the_store_of_an_earlier_run_is_not_taken_for_that_of_the_next() -> None:
    opened: list[tuple[int, int]] = []

    async def story() -> None:
        host, answers = StoreHost("127.0.0.1", memory_mb=64, connections=256), asyncio.StreamReader()
        host._wanted[1] = Wanted(4, lambda port: opened.append((4, port)), print)  # in place of run 3's
        for run in (3, 4):
            line = {"trainer": 1, "run": run, "port": 4000 + run}
            answers.feed_data(json.dumps(line).encode() + b"\n")
        answers.feed_eof()
        await host._listen(SimpleNamespace(stdout=answers))  # type: ignore[arg-type]

    asyncio.run(story())
    assert opened == [(4, 4004)]


def test_a_store_that_is_lost_before_its_run_begins_is_opened_again() -> None:
    world = World()
    world.begin("n", "m")
    world.launcher.perform(Regroup(trainer=1, generation=3, members=("n", "m"), leaving=()))
    world.opened[-1](4003)
    world.new()
    world.lost[-1]("its memory was full")
    world.exited("n", 2, **left(2, 10))
    world.exited("m", 2)
    assert "go" not in {kind for _, kind in world.new()}, "there is no store to meet at"
    world.opened[-1](4004)
    assert [kind for _, kind in world.new() if kind == "go"] == ["go", "go"]
    assert world.events == []


def test_processes_that_cannot_meet_any_more_begin_anew_without_blame() -> None:
    world = World()
    world.begin("n", "m")
    world.lost[-1]("its memory was full")
    assert world.events == [Resync(time=1.0, trainer=1, generation=2)]


def test_processes_that_take_steps_do_without_their_store() -> None:
    world = World()
    world.begin("n", "m")
    world.said("n", "resumed", 2, generation=2, size=2, step=1, at=5.0)
    world.events.clear()
    world.lost[-1]("its memory was full")
    assert world.events == []
    world.regroup(3, "n", "m")
    world.lost[0]("told late")
    assert world.events == []


def test_the_store_of_a_trainer_that_is_over_is_ended() -> None:
    world = World()
    world.launcher.known.forget(1)
    assert world.ended == [1]


def test_a_script_that_says_again_and_again_that_it_goes_on_causes_few_events() -> None:
    world = World()
    world.begin("n", "m")
    for _ in range(10 * MAX_PAUSES):
        world.said("n", "resumed", 2, generation=2, size=2, step=1, at=5.0)
    assert len(world.pauses) == MAX_PAUSES


def test_of_memberships_that_a_script_makes_up_nothing_is_kept() -> None:
    world = World()
    world.begin("n", "m")
    launched = world.launcher.known[1]
    launched.kinds[2] = PauseKind.LOSS
    kept = len(launched.kinds), len(launched.pauses)
    for generation in range(1000, 1100):
        world.said("n", "resumed", 2, generation=generation, size=2, step=1, at=5.0)
    assert (len(launched.kinds), len(launched.pauses)) == kept
    assert world.pauses == [] and launched.last_step_at is None


UNTIL_EXIT = replace(SPEC, samples=None)


@pytest.mark.parametrize("is_used", [True, False, None])
def test_processes_that_end_well_and_never_met_have_trained_apart(is_used: bool | None) -> None:
    world = World(UNTIL_EXIT)
    world.is_used = is_used
    world.begin("n", "m", attached=False)
    world.exited("m", 2)
    world.exited("n", 2)
    (event,) = world.events
    assert isinstance(event, TrainerEnded)
    assert event.status == ("failed" if is_used is False else "completed"), "None: there is no telling"
    assert ("its 2 processes never formed a group" in event.reason) is (is_used is False)


def test_one_process_need_not_form_a_group() -> None:
    world = World(UNTIL_EXIT)
    world.is_used = False
    world.begin("n", attached=False)
    world.exited("n", 2)
    assert [event.status for event in world.events if isinstance(event, TrainerEnded)] == ["completed"]


def test_a_store_that_does_not_answer_holds_up_no_end() -> None:
    later: list[Callable[[], None]] = []
    world = World(UNTIL_EXIT, limits=TimeLimits(later=lambda _, do: later.append(do)))
    world.used = lambda *_: None  # type: ignore[method-assign]
    world.begin("n", "m", attached=False)
    world.exited("m", 2)
    world.exited("n", 2)
    assert world.events == []
    later[-1]()
    assert [type(event) for event in world.events] == [TrainerEnded]


def test_the_user_is_told_while_processes_have_formed_no_group() -> None:
    later: list[Callable[[], None]] = []
    world = World(limits=TimeLimits(later=lambda _, do: later.append(do)))
    world.begin("n", "m", attached=False)
    for is_used in (False, True):
        world.is_used, world.now = is_used, world.now + 60.0
        later.pop(0)()
        assert ("have formed no group" in world.launcher.note(1)) is not is_used
    assert later == [], "once they have met, nobody looks again"


def test_the_script_can_say_that_another_start_would_be_the_same() -> None:
    world = World()
    world.begin("n", "m")
    world.said("m", "failed", 2, generation=2, reason="torch.distributed counts 1")
    (event,) = world.events
    assert isinstance(event, TrainerEnded)
    assert (event.status, event.reason) == ("failed", "torch.distributed counts 1")


@pytest.mark.parametrize(
    ("attached", "lasts_s", "told"),
    [
        (False, 40.0, "started 31 times, for 40 s at the longest, and tells of no progress"),
        (False, 70.0, ""),
        (True, 70.0, "has begun 31 times in a row, and never came further than 160 samples"),
    ],
)
def test_a_script_whose_every_run_comes_to_nothing_is_ended(
    attached: bool, lasts_s: float, told: str
) -> None:
    world = World()
    world.begin("n", attached=attached)
    for run in range(2, 40):
        if attached:  # the first run comes furthest
            about = {"step": 1, "size": 1, "rate": None, "epoch": 0, "metrics": {}, "at": world.now}
            world.said("n", "progress", run, generation=run, samples=160 if run == 2 else 100, **about)
        world.now += lasts_s
        world.regroup(run + 1, "n")
        world.exited("n", run)
        if any(isinstance(event, TrainerEnded) for event in world.events):
            break
    ends = [event for event in world.events if isinstance(event, TrainerEnded)]
    assert [event.status for event in ends] == (["failed"] if told else [])
    assert not told or told in ends[0].reason


DONE = {"generation": 2, "step": 10, "samples": 1000, "epoch": 0, "metrics": {}}


def ended_after_done(
    *order: str, code: int = 1, reason: str = "exit code 1: ValueError: boom"
) -> TrainerEnded:
    """How a trainer ends whose rank 0 has called `done` first, and ends well; `b` is another rank."""
    world = World()
    world.begin("a", "b")
    world.said("a", "finished", 2, rank=0, **DONE)
    for what in order:
        match what:
            case "b done":
                world.said("b", "finished", 2, rank=1, **DONE)
            case "b":
                world.said("b", "exited", 2, code=code, phase="member", reason=reason, last={})
            case "a":
                world.exited("a", 2)
        ends = [event for event in world.events if isinstance(event, TrainerEnded)]
        assert not ends or what == order[-1]
    (end,) = ends
    return end


@pytest.mark.parametrize("order", [("b done", "b", "a"), ("b done", "a", "b"), ("b", "a")])
def test_an_error_of_another_rank_after_the_work_fails_the_trainer(order: tuple[str, ...]) -> None:
    """Also where it is told to end, as rank 0 has."""
    end = ended_after_done(*order)
    assert end.status is TrainerStatus.FAILED
    assert end.reason.startswith(
        "after its loop, its script failed on b: exit code 1: ValueError: boom. See bftrainer logs 1 "
    )


@pytest.mark.parametrize(
    ("order", "code", "reason"),
    [
        (("a", "b"), 1, "exit code 1: ValueError: boom"),  # nothing says that it had come so far
        (("b done", "a", "b"), -15, ""),
        (("b done", "b", "a"), -9, ""),
        (
            ("b done", "a", "b"),
            1,
            "exit code 1: RuntimeError: [gloo/transport/pair.cc] Connection closed by peer",
        ),
        (("b", "a"), 1, "exit code 1: RuntimeError: [gloo/transport/pair.cc] Connection reset by peer"),
    ],
)
def test_a_rank_that_is_ended_or_misses_rank_0_after_the_work_fails_no_trainer(
    order: tuple[str, ...], code: int, reason: str
) -> None:
    assert ended_after_done(*order, code=code, reason=reason).status is TrainerStatus.COMPLETED


def test_after_a_restart_of_the_daemon_a_rank_that_has_done_its_work_is_not_taken_for_rank_0() -> None:
    world = World()
    world.launcher.add(1, SPEC, published=2, members=("a", "b"), step=5, samples=500)
    known = {"trainer": 1, "generation": 1, "run": 2, "joined": 2}
    world.launcher.agent_up("b", [Running(**known, phase="finished")], {1})
    assert world.launcher.known[1].finisher == ""
    world.launcher.agent_up("a", [Running(**known, phase="finished")], {1})
    assert world.launcher.known[1].finisher == "a"


def test_a_script_that_tells_of_no_progress_may_be_warned_of_something() -> None:
    """And is none the more one that has attached."""
    world = World(replace(SPEC, samples=None))
    world.begin("a", "b", attached=False)
    world.said("a", "warned", 2, warned=["apart"])
    known = world.launcher.known[1]
    assert known.reported is not None and known.reported.warned == ("apart",)
    assert (known.reported.step, known.reported.samples, known.attached) == (0, 0, False)
    world.said("a", "warned", 2, warned=[])
    assert known.reported.warned == (), "it is taken back"


def test_a_script_that_tells_of_no_samples_fails_at_its_end_where_the_spec_asks_for_some() -> None:
    """It would be run again and again, and end as soon each time."""
    world = World()
    world.begin("a", "b", attached=False)
    assert world.launcher.note(1) == ""
    world.now += 60.0
    assert "its spec asks for 1,000 samples (work)" in world.launcher.note(1)
    world.exited("b", 2)
    assert world.events == []
    world.exited("a", 2)
    (end,) = world.events
    assert isinstance(end, TrainerEnded) and end.status is TrainerStatus.FAILED
    assert end.reason.startswith(
        "its script ended with exit code 0 on a and told of none of the 1,000 samples"
    )
    assert "Say work: until_exit" in end.reason


@pytest.mark.parametrize("code", [0, 1])
def test_a_script_that_has_attached_and_ends_early_is_run_again(code: int) -> None:
    world = World()
    world.begin("a")
    world.exited("a", 2, code)
    assert [type(event) for event in world.events] == [WorkerLost]


def test_of_runs_before_one_that_came_further_nothing_is_told() -> None:
    runs, now = Runs(), 0.0
    for number, lasted_s in enumerate([50.0, 70.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]):
        runs.begin(number, 1, now)
        now += lasted_s
        assert runs.ended(now, 0, 0.0, attached=False) == ""
    runs.begin(8, 1, now)
    assert "for 10 s at the longest" in runs.note(now, 0.0, attached=False)
