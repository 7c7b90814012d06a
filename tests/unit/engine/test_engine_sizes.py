"""Trainers that allow some node counts only: what they get, and what happens when one of their nodes goes."""

from __future__ import annotations

from bftrainer.engine.contain import contained
from bftrainer.model.actions import Regroup, StartWorker, StopWorker
from bftrainer.model.events import NodesChanged
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, RescaleCosts
from tests.support.engine_world import EVERYBODY, World, regroup

POWERS = AllowedSizes(listed=(1, 2, 4, 8))
EVEN = AllowedSizes(multiple_of=2)


def test_a_trainer_gets_an_allowed_size_and_another_the_rest() -> None:
    world = World(EVERYBODY)
    world.submit(1, n_max=8, sizes=POWERS, rate=2.0)
    world.submit(2, n_min=2, n_max=6, sizes=EVEN)
    world.nodes(joined="abcdefg")
    assert (len(world.held(1)), len(world.held(2))) == (4, 2)


def test_who_loses_a_node_goes_down_to_the_next_size_and_others_get_the_rest() -> None:
    world = World(EVERYBODY).running("abcdefgh", n_max=8, sizes=POWERS, rate=2.0)
    world.submit(2, n_max=8)
    step = world.nodes(left="b")
    published = [action for action in step.actions if isinstance(action, Regroup)]
    assert published == [Regroup(trainer=1, generation=3, members=tuple("acde"), leaving=tuple("fgh"))]
    assert (world.held(1), world.held(2)) == ("acde", "fgh")


def test_who_loses_a_node_of_its_least_size_has_none() -> None:
    world = World().running("ab", n_min=2, n_max=4, sizes=EVEN)
    step = world.nodes(vacated="a")
    assert regroup(step).members == ()
    assert world.held(1) == ""


def test_survivors_wait_for_another_node_and_are_published_with_it() -> None:
    """Seven of eight nodes: they keep the state until the eighth is ready, with no membership of seven."""
    world = World().running("abcdefgh", n_max=8, sizes=POWERS)
    step = world.nodes(left="b", joined="x")
    assert step.actions == (StartWorker(trainer=1, generation=3, node="x"),)
    assert world.trainer(1).members == tuple("acdefgh")
    assert regroup(world.ready(1, "x")).members == tuple("acdefghx")


def test_survivors_do_not_wait_where_another_node_takes_too_long_to_pay() -> None:
    """All 8 stand still for 100 s of 120, or 4 train: by hand, 8 * 20 < 4 * 120."""
    slow = RescaleCosts(up=Cost(init_s=100.0))
    world = World().running("abcdefgh", n_max=8, sizes=POWERS, costs=slow)
    step = world.nodes(left="b", joined="x")
    assert regroup(step).members == tuple("acde")
    assert world.held(1) == "acde"


def test_a_lost_worker_is_waited_for() -> None:
    world = World().running("abcd", n_max=4, sizes=POWERS)
    step = world.lost(1, "c")
    assert [type(action) for action in step.actions] == [StartWorker]
    assert regroup(world.ready(1, "c")).members == tuple("abdc")


def test_newcomers_wait_until_the_members_have_an_allowed_size() -> None:
    """One node is a member; a second starts, then two more, which are ready first."""
    world = World().running("a", n_max=4, sizes=POWERS)
    world.nodes(joined="b")
    world.nodes(joined="cd")
    assert world.held(1) == "abcd"
    assert world.ready(1, "cd").actions == ()
    assert world.trainer(1).warm == set("cd")
    assert regroup(world.ready(1, "b")).members == tuple("abcd")


def test_newcomers_of_which_some_make_an_allowed_size_do_not_wait_for_the_others() -> None:
    world = World().running("ab", n_max=8, sizes=AllowedSizes(listed=(2, 3, 4, 8)))
    for joined in ("c", "d", "efgh"):
        world.nodes(joined=joined)
    assert world.ready(1, "efgh").actions == ()
    assert regroup(world.ready(1, "c")).members == tuple("abc")
    assert world.trainer(1).warm == set("efgh")
    assert regroup(world.ready(1, "d")).members == tuple("abcdefgh")


def test_without_a_plan_who_loses_a_node_goes_down_to_the_next_size() -> None:
    """Where a plan cannot be made, nodes still leave, and nobody is left on a size that it does not allow."""

    def fail(problem: Problem) -> Plan:
        raise ZeroDivisionError

    world = World().running("abcdefgh", n_max=8, sizes=POWERS)
    found = contained(world.state, NodesChanged(time=9.0, left=frozenset("b")), fail)
    assert isinstance(found.error, ZeroDivisionError)
    assert found.step.state.active[1].nodes == set("acde")
    assert [a for a in found.step.actions if isinstance(a, Regroup)] == [
        Regroup(trainer=1, generation=3, members=tuple("acde"), leaving=tuple("fgh"))
    ]
    assert not [a for a in found.step.actions if isinstance(a, StopWorker)]
