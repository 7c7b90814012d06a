"""The contract of launchers: one story of joins, leaves and faults, told in worlds real and simulated.

A world is a daemon with its store, nodes that come and go at will, and one trainer. Write a `LauncherWorld`
for a launcher and give `LauncherContract` a fixture `world` of it: then every story below is told there. Each
ends alike: the number of samples trained on is right, no process is left, and the store has what happened.
"""

from __future__ import annotations

from bftrainer.model.trainer import TrainerStatus
from bftrainer.testing.launcher_story import (
    begin,
    ends_well,
    leaves_nothing,
    told,
    trains_on,
    until_lost,
    until_phase,
    until_progress,
    until_trains_on,
)
from bftrainer.testing.launcher_world import LauncherWorld


class LauncherContract:
    """Needs a fixture `world`: a fresh `LauncherWorld` for every test."""

    # coming and going

    def test_a_node_joins(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.change(give="b")
        until_trains_on(world, "a", "b")
        assert world.trainer().members == ("a", "b"), "rank 0 has the state"
        assert told(world, "NodesChanged", joined="b")
        ends_well(world, "join")

    def test_several_nodes_join_at_once(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.change(give="bc")
        until_trains_on(world, "a", "b", "c")
        (change,) = told(world, "NodesChanged", joined="b")
        assert change["data"]["joined"] == ["b", "c"]
        assert world.trainer().members[0] == "a", "rank 0 has the state"
        ends_well(world, "join")

    def test_a_node_leaves_with_notice_and_comes_back(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.rival(1)
        world.until(lambda: len(world.trainer().workers) == 1, "one has left")
        until_trains_on(world, *world.trainer().members)
        until_progress(world)
        assert len(world.trainer().members) == 1
        world.rival_ends()
        until_trains_on(world, "a", "b")
        assert not told(world, "WorkerLost")
        assert not any(pause["lost_steps"] for pause in world.pauses()), "who leaves hands over first"
        ends_well(world, "leave", "join")

    def test_a_node_joins_and_another_leaves_in_one_change(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.change(give="c", take="b")
        until_trains_on(world, "a", "c")
        assert told(world, "NodesChanged", left="b") == told(world, "NodesChanged", joined="c")
        ends_well(world, "join")

    def test_two_changes_in_quick_succession(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.change(give="c")
        world.change(give="d", take="b")
        until_trains_on(world, "a", "c", "d")
        assert told(world, "NodesChanged", joined="c") and told(world, "NodesChanged", left="b")
        ends_well(world, "join")

    def test_shrinks_to_nothing_and_returns_on_other_nodes(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.rival(2)
        world.until(lambda: not world.trainer().workers, "it has left both nodes")
        reached = world.trainer().samples
        world.change(give="cd")
        until_trains_on(world, "c", "d")
        world.until(lambda: world.trainer().samples > reached, "it goes on from where it was")
        assert not any(pause["lost_steps"] for pause in world.pauses()), "those who leave checkpoint first"
        world.rival_ends()
        ends_well(world, "restart")

    # losses

    def test_a_killed_worker_is_replaced(self, world: LauncherWorld) -> None:
        begin(world, "a", "b", "c")
        world.kill_worker(world.trainer().members[-1])
        until_lost(world, "c")
        assert "signal 9" in told(world, "WorkerLost", node="c")[0]["data"]["reason"]
        until_trains_on(world, "a", "b", "c")
        ends_well(world, "loss", "join")

    def test_rank_0_is_killed(self, world: LauncherWorld) -> None:
        begin(world, "a", "b", "c")
        first, *others = world.trainer().members
        world.kill_worker(first)
        until_lost(world, first)
        until_trains_on(world, "a", "b", "c")
        lost = told(world, "WorkerLost")
        gave_up = {e["data"]["node"] for e in lost if "gave up after a loss" in e["data"]["reason"]}
        stay = tuple(node for node in others if node not in gave_up)  # Horovod's may, with their peer
        assert world.trainer().members[: len(stay)] == stay, lost
        ends_well(world, "loss", "join")

    def test_a_killed_agent_takes_its_worker_along_and_the_node_comes_back(
        self, world: LauncherWorld
    ) -> None:
        begin(world, "a", "b")
        world.kill_agent("b")
        world.until(lambda: told(world, "NodesChanged", left="b"), "the loss of b is told")
        until_trains_on(world, "a", "b")
        ends_well(world, "loss", "join")

    def test_all_workers_are_killed_at_once(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.kill_worker("a", "b")
        world.until(lambda: told(world, "WorkerLost"), "their loss is told")
        until_trains_on(world, "a", "b")
        ends_well(world, "restart")

    def test_all_nodes_are_taken_at_once(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.change(take="ab")
        world.until(lambda: told(world, "NodesChanged", left="b"), "they are gone")
        assert not world.trainer().members
        world.change(give="bc")
        until_trains_on(world, "b", "c")
        ends_well(world, "restart")

    def test_a_hung_worker_is_replaced(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.freeze("b")
        until_lost(world, "b")
        until_trains_on(world, "a", "b")
        ends_well(world, "loss", "join")

    def test_a_program_that_ends_with_work_left_is_started_again(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.end_early("a", "b")
        world.until(lambda: told(world, "WorkerLost"), "their end is told as a loss")
        assert not world.trainer().ended
        until_trains_on(world, "a", "b")
        ends_well(world, "restart")

    # joiners that die

    def test_a_joining_node_dies_before_its_worker_is_ready(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("b", "start")
        world.change(give="b")
        world.until(lambda: world.held("b", "start"), "b's worker has begun")
        world.kill_agent("b")
        world.release("b", "start")
        world.until(lambda: told(world, "NodesChanged", left="b"), "the loss of b is told")
        until_trains_on(world, "a", "b")
        assert not [pause for pause in world.pauses() if pause["kind"] == "loss"], "no member has noticed"
        ends_well(world, "join")

    def test_a_joiner_dies_before_it_joins(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("c", "start")
        world.change(give="bc")
        world.until(lambda: world.held("c", "start"), "c's worker has begun")
        until_phase(world, "b", "ready")
        world.kill_worker("b")
        until_lost(world, "b")
        world.release("c", "start")
        until_trains_on(world, "a", "b", "c")
        assert not [pause for pause in world.pauses() if pause["kind"] == "loss"], "no member has noticed"
        ends_well(world, "join")

    def test_a_joiner_dies_while_it_joins(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("c", "start")
        world.change(give="bc")
        world.until(lambda: world.held("c", "start"), "c's worker has begun")
        until_phase(world, "b", "ready")
        world.freeze("b")
        world.release("c", "start")

        def lost() -> bool:  # its agent kills who stands still for too long
            return bool(told(world, "WorkerLost", node="b"))

        world.until(
            lambda: "b" in world.trainer().members or lost(), "a membership with b is published", at_once=True
        )
        if not lost():
            world.kill_worker("b")
        until_lost(world, "b")
        until_trains_on(world, "a", "b", "c")
        ends_well(world, "join")

    def test_a_joiner_dies_just_after_it_has_joined(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("b", "step")
        world.change(give="b")
        world.until(lambda: world.held("b", "step"), "b is in its first step")
        world.kill_worker("b")
        world.release("b", "step")
        until_lost(world, "b")
        until_trains_on(world, "a", "b")
        ends_well(world, "join")  # whether a takes a step alone in between is a matter of time

    def test_a_joiner_is_taken_before_it_joins(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("b", "start")
        world.change(give="b")
        world.until(lambda: world.held("b", "start"), "b's worker has begun")
        world.change(take="b")
        world.until(lambda: "b" not in world.trainer().workers, "b is gone")
        world.release("b", "start")
        until_progress(world)
        assert trains_on(world, "a")
        ends_well(world)

    # in mid-change

    def test_cancelled_while_a_node_joins(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("b", "start")
        world.change(give="b")
        world.until(lambda: world.held("b", "start"), "b's worker has begun")
        world.cancel()
        world.release("b", "start")
        world.until(lambda: world.trainer().ended, "the trainer has ended")
        view = world.trainer()
        assert view.status is TrainerStatus.CANCELLED
        assert 0 < view.samples < view.work
        assert told(world, "TrainerCancelled")
        leaves_nothing(world)

    def test_the_daemon_restarts_while_a_worker_starts(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.hold("b", "start")
        world.change(give="b")
        world.until(lambda: world.held("b", "start"), "b's worker has begun")
        world.kill_daemon()
        world.release("b", "start")
        world.start_daemon()
        until_trains_on(world, "a", "b")
        lost = told(world, "WorkerLost")
        assert not lost, f"everybody was taken over: {lost}"
        ends_well(world, "join")

    def test_the_daemon_restarts_when_a_change_has_just_been_published(self, world: LauncherWorld) -> None:
        begin(world, "a")
        world.change(give="b")
        world.until(lambda: "b" in world.trainer().members, "a membership with b is published", at_once=True)
        world.kill_daemon()
        world.start_daemon()
        until_trains_on(world, "a", "b")
        until_progress(world)
        ends_well(world)

    def test_a_worker_dies_while_there_is_no_daemon(self, world: LauncherWorld) -> None:
        begin(world, "a", "b")
        world.kill_daemon()
        world.kill_worker("b")
        world.start_daemon()
        if world.keeps_steps:
            until_lost(world, "b")
        else:  # all restart after a loss: the first that is reported was lost
            world.until(lambda: told(world, "WorkerLost"), "a loss is told")
        until_trains_on(world, "a", "b")
        ends_well(world)
