"""Measured speeds and costs lead to new plans only where they matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from bftrainer.engine.question import problem_of
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State, Step
from bftrainer.model.events import (
    Measured,
)
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import (
    ASSUMED_COSTS,
    Cost,
    Points,
    RescaleCosts,
    Scalability,
    Trainer,
)
from bftrainer.performance import curve
from bftrainer.performance.estimate import costs_of, estimates_of
from tests.support.engine_world import World, make_spec, step_of


def measured(world: World, rate: float, trainer: int = 1, on: int | None = None) -> Step:
    """A window of a trainer on as many nodes as it has."""
    t = world.trainer(trainer)
    point = (on or len(t.members), rate)
    return world.take(Measured(time=0.0, trainer=trainer, generation=t.published, point=point))


def curve_of(trainer: Trainer) -> Points:
    return estimates_of((trainer,), {})[0][None].points


def test_no_more_than_twice_the_largest_size_seen_is_asked_for() -> None:
    world = World()
    world.nodes(joined="abcdefgh")
    world.submit(1, curve=None, n_max=8)
    for size in (2, 4, 8):
        assert len(world.trainer(1).nodes) == size  # n_min counts as seen
        joining = world.trainer(1).joining
        world.ready(1, "".join(sorted(joining)))
        measured(world, 10.0 * size)


def test_a_trainer_keeps_what_it_has_though_it_was_never_measured() -> None:
    """Journal of an earlier time: it has more nodes than it may ask for."""
    spec = make_spec(curve=None, n_max=8)
    old = Trainer(id=1, spec=spec, submitted_at=0.0, nodes=frozenset("abcdef"), members=tuple("abcdef"))
    state = restore(EngineSettings(), frozenset("abcdefgh"), [old])
    question, _ = problem_of(state, (state.active[1],), 0.0)
    assert question.candidates[0].n_max == 6


def test_what_would_change_little_is_not_decided_upon() -> None:
    world = World().running("ab", curve=None, n_max=2)
    assert measured(world, 10.0).plan is not None
    assert measured(world, 10.4).plan is None
    for rate in (10.5, 10.6):
        assert measured(world, rate).plan is None
    for _ in range(4):
        step = measured(world, 12.0)
    assert world.trainer(1).observed.speeds[0][2].count == 8
    assert step.plan is not None  # small changes that have added up since the last plan


def test_a_speed_that_was_overrated_is_decided_upon() -> None:
    world = World().running("ab", curve=None)
    world.submit(2, n_max=4, curve=((1, 3.0), (4, 4.0)))
    held = len(world.trainer(1).nodes)
    measured(world, 0.1)
    assert len(world.trainer(1).nodes) < held


def test_a_given_curve_is_where_learning_begins() -> None:
    world = World().running("ab")
    assert curve_of(world.trainer(1)) == make_spec().curve
    step = measured(world, 1.0)  # half of what was given
    assert step.plan is not None
    assert curve.rate(curve_of(world.trainer(1)), 2) == pytest.approx(1.0)
    assert curve.rate(curve_of(world.trainer(1)), 8) == pytest.approx(4.0, rel=0.05)


def test_with_scalability_given_nothing_is_learnt() -> None:
    world = World().running("ab", scalability=Scalability.GIVEN)
    step = measured(world, 0.001)
    assert (step.plan, step.actions) == (None, ())
    assert curve_of(world.trainer(1)) == make_spec().curve
    up = Cost(stall_s=9.0)
    world.take(Measured(time=0.0, trainer=1, generation=world.trainer(1).published, up=up))
    assert costs_of((world.trainer(1),), {}) == (RescaleCosts(),)


def test_a_speed_counts_for_the_class_of_nodes_that_it_was_measured_on() -> None:
    classes = {"fat": frozenset("xy"), "thin": frozenset("ab")}
    for nodes, seen_on in (("xy", "fat"), ("ab", None)):
        world = World(EngineSettings(node_classes=classes))
        world = world.running(nodes, curves=(("fat", ((1, 9.0), (2, 18.0))),))
        measured(world, 3.0)
        assert [(name, n) for name, n, _ in world.trainer(1).observed.speeds] == [(seen_on, 2)]
        estimates = estimates_of((world.trainer(1),), {})[0]
        assert curve.rate(estimates[seen_on].points, 2) == pytest.approx(3.0)
        other = {"fat": None, None: "fat"}[seen_on]
        assert curve.rate(estimates[other].points, 2) == pytest.approx({"fat": 18.0, None: 2.0}[other])


def test_costs_are_measured_or_given_or_like_the_others_or_assumed() -> None:
    trainer = Trainer(id=1, spec=replace(make_spec(), costs=None), submitted_at=0.0)
    new = replace(trainer, id=2)
    assert costs_of((trainer,), {}) == (ASSUMED_COSTS,)
    state = State(settings=EngineSettings(), active={1: trainer})
    for stall, estimated in ((2.0, 2.0), (4.0, 3.0), (90.0, 4.0)):
        up = Cost(stall_s=stall, init_s=2 * stall)
        state = step_of(state, Measured(time=0.0, trainer=1, generation=0, up=up)).state
        costs = RescaleCosts(up=Cost(stall_s=estimated, init_s=2 * estimated), down=ASSUMED_COSTS.down)
        assert costs_of((state.active[1], new), {}) == (costs, costs)
    given = replace(state.active[1], spec=make_spec())  # which says 0
    assert costs_of((given,), {})[0].up == Cost(stall_s=3.0, init_s=6.0)


def test_a_new_trainer_is_profiled_size_by_size_and_stays_until_it_is_measured() -> None:
    world = World(EngineSettings(profile_sizes=3))
    world.nodes(joined="abcdefgh")
    world.submit(1, curve=None, n_max=8)
    world.submit(2, n_max=8)
    for size in (1, 2, 4):
        assert len(world.trainer(1).nodes) == size
        world.ready(1, "".join(sorted(world.trainer(1).joining)))
        world.nodes(left="h" if size % 2 else "", joined="" if size % 2 else "h")  # whatever else happens
        assert len(world.trainer(1).nodes) == size
        assert measured(world, 3.0 * size).plan is not None
    assert len(world.trainer(1).nodes) > 4


def test_the_unknown_are_taken_to_be_as_fast_as_the_others() -> None:
    rates = (1.0, 7.0, 100.0)
    known = [Trainer(id=i, spec=make_spec(rate=r), submitted_at=0.0) for i, r in enumerate(rates)]
    unknown = Trainer(id=9, spec=make_spec(curve=None, n_max=4), submitted_at=0.0)
    assert estimates_of((*known, unknown), {})[-1][None].points == ((2, 14.0),)
    assert curve_of(unknown) == ((2, 2.0),)


def full(*waiting: int, commands: Mapping[int, str]) -> World:
    """Four nodes with a trainer each, all measured, and trainers that wait for one."""
    world = World()
    world.nodes(joined="abcd")
    for trainer in (1, 2, 3, 4):
        world.submit(trainer, curve=None, n_max=1, command=("python", commands.get(trainer, "t.py")))
        world.ready(trainer, "".join(world.trainer(trainer).joining))
        for _ in range(3):
            measured(world, 10.0, trainer)
    for trainer in waiting:
        world.submit(trainer, curve=None, n_max=1, command=("python", commands.get(trainer, "t.py")))
    return world


@pytest.mark.parametrize("other", ["t.py", "u.py"])
def test_a_first_slow_window_costs_no_trainer_its_node(other: str) -> None:
    """Whether those that wait run the same program, of which something is known, or another one."""
    world = full(5, 6, commands={5: other, 6: other})
    held = {t: world.trainer(t).nodes for t in (1, 2, 3, 4)}
    for _ in range(3):
        measured(world, 4.0, 1)
    assert world.trainer(1).observed != world.trainer(2).observed
    assert {t: world.trainer(t).nodes for t in held} == held


def test_the_first_in_the_queue_gets_the_next_node_though_it_was_measured_as_slow() -> None:
    world = full(commands={})
    for _ in range(3):
        measured(world, 9.0, 1)
    world.nodes(left="".join(world.trainer(1).nodes))
    for trainer in (5, 6, 7):
        world.submit(trainer, curve=None, n_max=1, command=("python", "t.py"))
    assert not world.trainer(1).nodes
    world.nodes(joined="e")
    assert world.trainer(1).nodes == {"e"}, "it was submitted before those that were never measured"
