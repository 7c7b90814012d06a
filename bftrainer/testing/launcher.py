"""The contract of launchers: one story of joins, leaves and faults, told in worlds real and simulated.

A world is a daemon with its store, nodes that come and go at will, and one trainer. Write a
`LauncherWorld` for a launcher, give `LauncherContract` a fixture `world` of it, and every story below is
told there. Each ends alike: the number of samples trained on is right, no process is left, and the store
tells what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bftrainer.model.reports import Row
from bftrainer.model.trainer import TrainerStatus

Moment = Literal["start", "step"]
"""Where a worker can be held: before it is ready to join, or in its first step as a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerView:
    """The trainer as `bftrainer show` has it: `members` in rank order, `workers` node -> phase."""

    status: TrainerStatus
    samples: int
    work: int
    members: tuple[str, ...]
    workers: Mapping[str, str]
    ended: bool


class LauncherWorld(Protocol):
    """Verbs order, at once; `until` waits for what follows. Nodes are a, b, c and d; none is idle at first.

    `keeps_steps`: whether the members that stay keep every step when another joins, leaves or dies. A
    launcher that restarts its workers instead repeats what came after the last checkpoint.
    """

    keeps_steps: bool

    # the user

    def submit(self) -> None:
        """Submit the trainer: 1 to 4 nodes, as many as there are; slow until `finish`."""
        ...

    def cancel(self) -> None: ...

    def finish(self) -> None:
        """From now on steps take no longer than they must."""
        ...

    def rival(self, size: int) -> None:
        """Submit another trainer that needs `size` nodes, and far heavier: the plan takes them from ours."""
        ...

    def rival_ends(self) -> None: ...

    # the main scheduler

    def change(self, *, give: Collection[str] = (), take: Collection[str] = ()) -> None:
        """Nodes become idle, and others are taken with all that runs there, without notice. One change."""
        ...

    # faults

    def kill_worker(self, *nodes: str) -> None:
        """SIGKILL."""
        ...

    def kill_agent(self, node: str) -> None:
        """SIGKILL; the node stays idle."""
        ...

    def freeze(self, node: str) -> None:
        """SIGSTOP the worker."""
        ...

    def end_early(self, *nodes: str) -> None:
        """Have the workers' programs end with exit code 0, whatever work is left."""
        ...

    def kill_daemon(self) -> None:
        """SIGKILL."""
        ...

    def start_daemon(self) -> None: ...

    # moments

    def hold(self, node: str, moment: Moment) -> None:
        """Hold the next worker on `node` when it comes to `moment`."""
        ...

    def held(self, node: str, moment: Moment) -> bool:
        """Whether a worker is being held there now."""
        ...

    def release(self, node: str, moment: Moment) -> None: ...

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Let time pass until the condition holds. Fails after a reasonable time, saying `what` and why."""
        ...

    # what there is to see

    def trainer(self) -> TrainerView: ...

    def events(self) -> list[Row]:
        """The store's events, oldest first."""
        ...

    def pauses(self) -> list[Row]:
        """The store's pauses of the trainer, oldest first."""
        ...

    def audit(self) -> None:
        """Assert from the workers' own notes, where there are any, that every sample was used once."""
        ...

    def stop(self) -> None:
        """Stop the daemon as an operator would, and wait until it has gone."""
        ...

    def processes(self) -> Collection[object]:
        """What runs of this world now: agents, workers, their children."""
        ...


# --- telling a story ------------------------------------------------------------------------------


def told(world: LauncherWorld, kind: str, **data: object) -> list[Row]:
    """The stored events of a kind whose data have these values; of a list of nodes, one is enough."""

    def fits(found: object, wanted: object) -> bool:
        return wanted in found if isinstance(found, list) else found == wanted

    return [
        row
        for row in world.events()
        if row["kind"] == kind and all(fits(row["data"][key], wanted) for key, wanted in data.items())
    ]


def trains_on(world: LauncherWorld, *nodes: str) -> bool:
    """Whether exactly these nodes are members, and all have joined."""
    view = world.trainer()
    joined = {node for node, phase in view.workers.items() if phase == "member"}
    return set(view.members) == joined == set(nodes)


def until_trains_on(world: LauncherWorld, *nodes: str) -> None:
    world.until(lambda: trains_on(world, *nodes), f"the trainer trains on {', '.join(nodes)}")


def until_progress(world: LauncherWorld) -> None:
    before = world.trainer().samples
    world.until(lambda: world.trainer().samples > before, f"it gets beyond {before} samples")


def begin(world: LauncherWorld, *nodes: str) -> None:
    """A trainer that trains on these nodes."""
    world.submit()
    world.change(give=nodes)
    until_trains_on(world, *nodes)
    until_progress(world)


def until_lost(world: LauncherWorld, node: str) -> None:
    """The engine has been told of the loss of a worker, with a reason."""
    world.until(lambda: told(world, "WorkerLost", node=node), f"the loss of {node}'s worker is told")
    assert all(row["data"]["reason"] for row in told(world, "WorkerLost", node=node))


def until_phase(world: LauncherWorld, node: str, phase: str) -> None:
    world.until(lambda: world.trainer().workers.get(node) == phase, f"{node}'s worker is {phase}")


def ends_well(world: LauncherWorld, *kinds: str) -> None:
    """The work is done, exactly; nothing runs on; the store tells the end and pauses of these kinds.

    Who replaces a lost one may come before the others have met: one pause, of all members, is then both.
    """
    members = len(world.trainer().members)
    world.finish()
    world.until(lambda: world.trainer().ended, "the trainer has ended")
    view = world.trainer()
    assert view.status is TrainerStatus.COMPLETED
    assert view.samples == view.work
    assert len(told(world, "TrainerEnded", status="completed")) >= 1
    pauses = world.pauses()
    if world.keeps_steps:
        found = {pause["kind"] for pause in pauses}
        if any((pause["kind"], pause["size"]) == ("loss", members) for pause in pauses):
            found.add("join")
        assert set(kinds) <= found, [*pauses, *told(world, "WorkerLost")]
        lossy = [p for p in pauses if p["kind"] != "restart" and p["lost_steps"]]
        assert not lossy, lossy
    else:
        assert pauses
    world.audit()
    leaves_nothing(world)


def leaves_nothing(world: LauncherWorld) -> None:
    world.until(lambda: not world.trainer().workers, "the trainer's workers have gone")
    world.stop()
    assert not list(world.processes())


class LauncherContract:
    """Needs a fixture `world`: a `LauncherWorld` that begins anew with every test."""

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
        assert world.trainer().members == (*others, first), told(world, "WorkerLost")
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

        world.until(lambda: "b" in world.trainer().members or lost(), "a membership with b is published")
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
        world.until(lambda: "b" in world.trainer().members, "a membership with b is published")
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
        else:  # all start anew after a loss: whoever is heard of first was lost
            world.until(lambda: told(world, "WorkerLost"), "a loss is told")
        until_trains_on(world, "a", "b")
        ends_well(world)
