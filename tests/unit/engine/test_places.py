"""Which trainers have places: fair between users, and none for what can never run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.engine.queueing.places import dealt, why_never
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State
from bftrainer.model.actions import Regroup
from bftrainer.model.events import MachineChanged, PolicyChanged, TrainerEnded
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Trainer, TrainerStatus
from tests.support.engine_world import CLASSES, World, make_spec, starts

TWO = EngineSettings(max_parallel=2)


def placed(state: State) -> list[int]:
    return sorted(state.active.keys() - state.displaced)


def machine(world: World, **nodes: int) -> None:
    world.take(MachineChanged(time=0.0, nodes={"": 4, **nodes}))


# --- what can never run ----------------------------------------------------------------------------


def test_trainers_that_can_never_run_take_no_place() -> None:
    world = World(TWO)
    machine(world)
    world.nodes(joined="abcd")
    for i in range(1, 11):
        world.submit(i, n_min=1_000_000, n_max=1_000_000, user="eve")
    step = world.submit(11, n_max=4, user="ann")
    assert placed(world.state) == [11]
    assert {trainer for trainer, _ in starts(step)} == {11}
    assert sum(trainer.spec.user == "eve" for trainer in world.state.waiting) == 10


def test_they_give_their_place_up_when_the_machine_is_known_or_shrinks_and_run_when_it_has_grown() -> None:
    world = World(TWO)
    world.submit(1, n_min=6, user="eve")
    world.submit(2, n_min=5, user="eve")
    world.submit(3, user="ann")
    world.nodes(joined="abcd")
    assert placed(world.state) == [1, 3]  # places go round; of two that wait, the user's first
    machine(world)
    assert placed(world.state) == [3]
    world.take(MachineChanged(time=0.0, nodes={"": 5}))
    assert placed(world.state) == [2, 3]
    world.take(MachineChanged(time=0.0, nodes={"": 6}))
    assert placed(world.state) == [2, 3]
    world.end(2)
    assert placed(world.state) == [1, 3]


def test_a_trainer_that_holds_nodes_keeps_its_place_whatever_is_said_of_the_machine() -> None:
    world = World(TWO).running("abcd", n_min=4)
    world.take(MachineChanged(time=0.0, nodes={"": 3}))
    assert placed(world.state) == [1]


@pytest.mark.parametrize(
    ("spec", "policy", "nodes", "why"),
    [
        (make_spec(n_min=4, n_max=9), EngineSettings(), {"": 4}, ""),
        (make_spec(n_min=5, n_max=9), EngineSettings(), None, ""),
        (
            make_spec(n_min=1_000_000, n_max=1_000_000),
            EngineSettings(),
            {"": 4},
            "needs at least 1,000,000 nodes; this machine has 4",
        ),
        (
            make_spec(n_min=5),
            EngineSettings(user_max_nodes=4),
            None,
            "needs at least 5 nodes; one user's trainers hold at most 4 here (user_max_nodes)",
        ),
        (
            make_spec(n_min=5),
            CLASSES,
            {"fat": 3, "thin": 4},
            "needs at least 5 nodes; no class of nodes that it can use has more than 4",
        ),
        (make_spec(n_min=4), CLASSES, {"fat": 3, "thin": 4}, ""),
        (
            make_spec(n_min=4, curves=(("thin", ()),)),
            CLASSES,
            {"fat": 3, "thin": 4},
            "needs at least 4 nodes; no class of nodes that it can use has more than 3",
        ),
    ],
)
def test_its_user_is_told_why(spec: object, policy: EngineSettings, nodes: dict[str, int], why: str) -> None:
    assert why_never(spec, policy, nodes) == why  # type: ignore[arg-type]


# --- between users -----------------------------------------------------------------------------------


def test_a_user_that_waits_takes_a_place_from_one_that_has_two_more() -> None:
    world = World(TWO)
    world.nodes(joined="abcd")
    for i in range(1, 6):
        world.submit(i, n_max=2, user="ann")
    world.ready(1, world.held(1))
    world.ready(2, world.held(2))
    step = world.submit(6, n_max=2, user="bob")
    assert placed(world.state) == [1, 6]
    (left,) = [a for a in step.actions if isinstance(a, Regroup)]
    assert (left.trainer, left.members, len(left.leaving)) == (2, (), 2)  # it writes a checkpoint, and leaves
    assert {trainer for trainer, _ in starts(step)} == {6}
    world.submit(7, n_max=2, user="bob")
    assert placed(world.state) == [1, 6]
    assert world.trainer(2).status is TrainerStatus.WAITING


def test_nobody_is_sent_away_for_one_that_would_then_wait_just_as_long() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="ab")
    world.submit(1, n_max=1, user="ann")
    world.submit(2, n_max=1, user="bob")
    assert placed(world.state) == [1]
    world.submit(3, n_max=1, user="bob")
    assert placed(world.state) == [1]
    world.end(1)
    assert placed(world.state) == [2]


def test_of_the_others_trainers_the_one_without_nodes_gives_its_place_up() -> None:
    world = World(TWO)
    world.nodes(joined="ab")
    world.submit(1, n_min=4, user="ann")  # could run if the pool were larger
    world.submit(2, n_max=2, user="ann")
    world.submit(3, n_max=2, user="bob")
    assert placed(world.state) == [2, 3]


def test_who_lost_a_place_is_served_in_its_turn_again() -> None:
    world = World(TWO)
    world.nodes(joined="ab")
    for i, user in enumerate(("ann", "ann", "ann", "bob"), start=1):
        world.submit(i, n_max=1, user=user)
    assert placed(world.state) == [1, 4]
    world.end(4)
    assert placed(world.state) == [1, 2]  # before 3, which came later


def test_the_end_of_a_trainer_that_lost_its_place_counts() -> None:
    world = World(TWO)
    world.nodes(joined="ab")
    world.submit(1, n_max=1, user="ann")
    world.submit(2, n_max=1, user="ann")
    world.ready(1, world.held(1))
    world.ready(2, world.held(2))
    world.submit(3, n_max=1, user="bob")
    end = TrainerEnded(time=0.0, trainer=2, generation=world.trainer(2).published)
    step = world.take(end)
    assert step.ended is not None and step.ended.trainer == 2
    assert placed(world.state) == [1, 3]
    assert not world.state.displaced


def test_a_higher_priority_is_not_shared_with_a_lower_one() -> None:
    world = World(TWO)
    for i in (1, 2):
        world.submit(i, priority=2.0, user="ann")
    world.submit(3, priority=1.0, user="bob")
    assert placed(world.state) == [1, 2]
    world.submit(4, priority=2.0, user="eve")
    assert placed(world.state) == [1, 4]


def test_a_lower_limit_takes_nobodys_nodes() -> None:
    world = World(EngineSettings(max_parallel=3))
    world.nodes(joined="abc")
    for i, user in enumerate(("ann", "bob", "eve"), start=1):
        world.submit(i, n_max=1, user=user)
    world.state = replace(world.state, settings=TWO)
    world.take(PolicyChanged(time=0.0))
    assert [len(world.held(i)) for i in (1, 2, 3)] == [1, 1, 1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("se"), st.sampled_from([1.0, 2.0])), max_size=30))
def test_one_user_is_served_as_published(ops: list[tuple[str, float]]) -> None:
    """Highest priority first, then first come, first served; who has a place keeps it."""
    world, active, waiting = World(TWO), list[int](), list[tuple[float, int]]()
    for i, (op, priority) in enumerate(ops, start=1):
        if op == "s":
            world.submit(i, priority=priority, n_min=1 + i % 3)
            waiting.append((-priority, i))
        elif active:
            world.end(active.pop(0))
        while waiting and len(active) < 2:
            active.append(min(waiting)[1])
            waiting.remove(min(waiting))
        assert list(world.state.active) == active
        assert not world.state.displaced


def test_without_the_limit_nobody_is_without_a_place() -> None:
    world = World(TWO)
    world.nodes(joined="ab")
    for i, user in enumerate(("ann", "ann", "bob"), start=1):
        world.submit(i, n_max=1, user=user)
    assert world.state.displaced == {2}
    world.state = replace(world.state, settings=EngineSettings(max_parallel=None))
    world.take(PolicyChanged(time=0.0))
    assert not world.state.displaced


def test_a_part_of_the_queue_is_dealt_between_users() -> None:
    users = ("ann", "ann", "ann", "bob", "ann", "bob", "eve")
    queue = [
        Trainer(id=i, spec=make_spec(user=user), submitted_at=float(i))
        for i, user in enumerate(users, start=1)
    ]
    assert [t.id for t in dealt(queue)] == [1, 4, 7, 2, 6, 3, 5]
    vip = Trainer(id=9, spec=make_spec(user="ann", priority=2.0), submitted_at=9.0)
    assert [t.id for t in dealt([*queue, vip])] == [9, 1, 4, 7, 2, 6, 3, 5]
    world = World(EngineSettings(max_parallel=None, nodes_per_trainer=1.0, ageing_s=None))
    world.nodes(joined="ab")
    for trainer in queue:
        world.submit(trainer.id, n_max=1, user=trainer.spec.user)
    assert [i for i in range(1, 8) if world.held(i)] == [1, 4]


def test_after_a_restart_those_that_hold_nodes_go_on_and_the_rest_is_dealt() -> None:
    stored = [
        Trainer(id=i, spec=make_spec(user=user), submitted_at=float(i), nodes=frozenset(nodes))
        for i, (user, nodes) in enumerate((("ann", ""), ("ann", ""), ("bob", ""), ("ann", "a")), start=1)
    ]
    state = restore(TWO, frozenset("ab"), stored)
    assert placed(state) == [3, 4]
    assert state.active[4].nodes == {"a"}
