"""Which waiting trainers a plan considers, by limit, age, priority and objective."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.engine.question import weight_of
from bftrainer.engine.restore import restore
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import (
    Trainer,
)
from tests.support.engine_world import EVERYBODY, World, make_spec, starts


def test_without_a_limit_every_waiting_trainer_can_be_given_nodes_at_once() -> None:
    world = World(EVERYBODY)
    world.nodes(joined="ab")
    for id_ in range(1, 31):
        world.submit(id_, n_max=1)
    assert list(world.state.active) == [1, 2]
    assert len(world.state.waiting) == 28

    step = world.submit(99, n_max=2, weight=10.0)
    assert starts(step) == [(99, "a"), (99, "b")]
    assert list(world.state.active) == [1, 2, 99]  # a trainer that was given nodes once stays active
    assert step.plan is not None
    assert dict(step.plan.counts) == {1: 0, 2: 0, 99: 2}
    assert step.plan.allocation == {1: set(), 2: set(), 99: {"a", "b"}}
    assert starts(world.end(99)) == [(1, "a"), (2, "b")]
    assert starts(world.end(1)) == [(3, "a")]
    assert starts(world.nodes(joined="c")) == [(4, "c")]
    assert world.end(20).plan is None  # one that waits: nothing to decide


def test_without_a_limit_a_plan_omits_trainers_that_get_nothing_and_never_had_nodes() -> None:
    world = World(EVERYBODY)
    step = world.submit(1)
    assert step.plan is None  # there is no node to share out
    world.nodes(joined="a")
    world.submit(2, n_min=2)
    step = world.submit(3)
    assert step.plan is not None
    assert dict(step.plan.counts) == {1: 1}
    world.submit(4)
    assert list(world.end(1).state.active) == [3]  # trainer 2 comes first, but cannot run on one node
    assert [t.id for t in world.state.waiting] == [2, 4]


@pytest.mark.parametrize(("pool", "served"), [("a", 1), ("ab", 1), ("abc", 2), ("abcde", 3)])
def test_so_many_of_the_queue_are_served_as_there_are_nodes_for_rounded_up(pool: str, served: int) -> None:
    world = World(replace(EVERYBODY, nodes_per_trainer=2.0))
    for trainer in (1, 2, 3, 4):
        world.submit(trainer, n_max=1)
    world.nodes(joined=pool)
    assert list(world.state.active) == [1, 2, 3, 4][:served]


def rounds_until_served(settings_: EngineSettings, rounds: int) -> int | None:
    """A trainer waits for the only node; every 100 s one comes that is ten times as fast, and one is done."""
    world = World(settings_)
    world.nodes(joined="a")
    world.submit(100, n_max=1, rate=10.0)
    world.submit(1, n_max=1)
    for k in range(1, rounds + 1):
        world.now = 100.0 * k
        world.submit(100 + k, n_max=1, rate=10.0)
        (holder,) = (t.id for t in world.state.trainers.values() if t.nodes)
        if holder == 1:
            return k
        world.end(holder)
    return None


def test_with_ageing_no_trainer_starves() -> None:
    """Its weight is 10 after 9 ageing times, and that of a newcomer is a little more than 1."""
    settings_ = replace(EVERYBODY, ageing_s=100.0)
    served = rounds_until_served(settings_, 40)
    assert served is not None
    assert 9 <= served <= 25
    assert rounds_until_served(EVERYBODY, 40) is None


def test_weights_age_only_without_a_limit_that_keeps_the_order_of_arrival() -> None:
    trainer = Trainer(id=1, spec=make_spec(weight=3.0), submitted_at=50.0)
    ageing = EngineSettings(max_parallel=None, ageing_s=100.0)
    assert [weight_of(trainer, ageing, now) for now in (50.0, 150.0, 250.0)] == [3.0, 6.0, 9.0]
    assert weight_of(trainer, ageing, 0.0) == 3.0  # the clock was set back
    assert weight_of(trainer, replace(ageing, ageing_s=None), 250.0) == 3.0
    assert weight_of(trainer, replace(ageing, max_parallel=4), 250.0) == 3.0


def test_who_waits_for_a_place_is_served_by_priority_and_then_by_arrival() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="ab")
    for id_, priority in ((1, 1.0), (2, 1.0), (3, 5.0), (4, 5.0), (5, 7.0)):
        world.submit(id_, priority=priority)
    assert [t.id for t in world.state.waiting] == [5, 3, 4, 2]
    stored = list(world.state.trainers.values())
    again = restore(world.settings, world.state.pool, sorted(stored, key=lambda t: t.id))
    assert list(again.active) == [1]
    assert [t.id for t in again.waiting] == [5, 3, 4, 2]
    for gone, next_ in ((1, 5), (5, 3), (3, 4), (4, 2)):
        assert starts(world.end(gone)) == [(next_, "a"), (next_, "b")]


def test_the_objective_that_is_named_decides() -> None:
    """A fast one, and one that is slow but matters more."""
    for text, winner in (
        ("throughput", 1),
        ("efficiency", 2),  # alike: the one of the higher priority
        ("priority", 2),
        ("0.01*throughput + priority", 2),
        ("0.9*throughput + 0.1*priority", 1),
    ):
        world = World(EngineSettings(objective=text))
        world.submit(1, rate=100.0)
        world.submit(2, priority=3.0)
        world.nodes(joined="ab")
        assert world.held(winner) == "ab", text
