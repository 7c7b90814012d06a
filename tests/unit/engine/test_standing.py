"""Trainers count by what they have had, or have left to do, where the site says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.engine.due import due
from bftrainer.engine.queueing.fair_shares import TURN_S
from bftrainer.engine.restore import restore
from bftrainer.model.events import Measured, PlanDue
from bftrainer.model.policy import EngineSettings, WeightsBy
from bftrainer.model.trainer import Trainer
from bftrainer.store.rows import SPEC, STORED, of_engine
from tests.support.engine_world import World

RANKED = EngineSettings(
    objective="goodput", goodput_power=0.5, weights_by=WeightsBy.WORK, max_parallel=None, ageing_s=None
)
"""The objective that ends jobs soonest in replays of a cluster."""
SERVED = EngineSettings(objective="efficiency", weights_by=WeightsBy.SERVICE, service_threshold_s=100.0)


def curve(*gains: float) -> tuple[tuple[int, float], ...]:
    return tuple((n, sum(gains[:n])) for n in range(1, len(gains) + 1))


CURVES = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=3).map(
    lambda gains: curve(1.0, *sorted(gains, reverse=True))
)
WORK = st.one_of(st.none(), st.integers(1, 10_000))


@settings(deadline=None)
@given(st.lists(st.tuples(CURVES, WORK), min_size=1, max_size=4), st.integers(1, 6))
def test_no_other_counts_are_worth_more_by_rank_and_power(
    asked: Sequence[tuple[tuple[tuple[int, float], ...], int | None]], pool: int
) -> None:
    world = World(RANKED)
    for id_, (points, samples) in enumerate(asked, start=1):
        world.submit(id_, curve=points, n_max=len(points), samples=samples, command=("train", str(id_)))
    world.nodes(joined="abcdef"[:pool])
    left = {id_: samples or 0.0 for id_, (_, samples) in enumerate(asked, start=1)}
    order = sorted(left, key=lambda id_: (-left[id_], -id_))  # who came first counts most where they tie
    tables = [(0.0, *(rate for _, rate in points)) for points, _ in asked]

    def worth(counts: Sequence[int]) -> float:
        return sum(
            (order.index(id_) + 1) * tables[id_ - 1][n] ** 0.5 for id_, n in enumerate(counts, start=1)
        )

    every = product(*(range(len(table)) for table in tables))
    best = max(worth(counts) for counts in every if sum(counts) <= pool)
    chosen = [len(world.trainer(id_).nodes) for id_ in left]
    assert worth(chosen) == pytest.approx(best)


def told(world: World, trainer: int, left: float) -> None:
    published = world.trainer(trainer).published
    world.take(Measured(time=0.0, trainer=trainer, generation=published, left=left))


def test_who_has_less_left_to_do_gets_the_nodes_that_both_want() -> None:
    world = World(replace(RANKED, goodput_power=1.0)).running("ab", n_max=2, samples=100)
    world.submit(2, n_max=2, samples=50)
    assert (world.held(1), world.held(2)) == ("", "ab")
    world.ready(2, "ab")
    told(world, 2, 30.0)
    assert world.trainer(2).left == 30.0
    world.take(PlanDue(time=0.0))
    assert world.held(2) == "ab"
    told(world, 2, 150.0)  # the script takes more than its spec says
    world.take(PlanDue(time=0.0))
    assert (world.held(1), world.held(2)) == ("ab", "")


def test_who_was_served_gives_nodes_to_who_was_not() -> None:
    world = World(SERVED).running("ab", n_max=2)
    world.submit(2, n_max=2)
    assert (world.held(1), world.held(2)) == ("ab", ""), "both count alike up to the threshold"
    world.now += 200.0
    world.take(PlanDue(time=0.0))
    assert (world.held(1), world.held(2)) == ("", "ab")
    assert world.trainer(1).served_s == pytest.approx(2 * 203.0)


def test_service_is_counted_over_every_change_of_nodes() -> None:
    world = World(EngineSettings())
    world.submit(1)
    world.now = 10.0
    world.nodes(joined="ab")
    world.now = 20.0
    world.ready(1, "ab")
    world.now = 30.0
    world.nodes(left="a")
    world.now = 50.0
    world.lost(1, "b")  # its worker starts again: the node stays
    world.now = 60.0
    world.nodes(joined="cd")
    assert world.trainer(1).served_s == 2 * 20 + 30
    assert world.trainer(1).served(70.0) == 2 * 20 + 30 + 3 * 10
    assert world.trainer(1).served(50.0) == 2 * 20 + 30, "the clock was set back"
    world.now = 70.0
    world.nodes(left="bcd")
    assert world.trainer(1).served(1e9) == 2 * 20 + 30 + 3 * 10


def test_what_was_had_counts_in_the_decision_that_follows_the_loss_of_it() -> None:
    world = World(SERVED)
    world.submit(1, n_max=2)
    world.nodes(joined="ab")
    world.submit(2, n_max=2)
    world.now = 300.0
    world.nodes(joined="c", left="ab")
    assert (world.held(1), world.held(2)) == ("", "c")


def stored(trainer: Trainer) -> Trainer:
    """A trainer as it comes back from the store."""
    own = {"id": trainer.id, "submitted_at": trainer.submitted_at, "spec": SPEC.dump_python(trainer.spec)}
    brief = {"status": "running", "reason": "", "ended_at": None, "samples": 0, "step": 0, "epoch": 0}
    brief |= {"rate": None, "metrics": {}, "of": None, "warned": ()}
    return STORED.validate_python({**own, **brief, "engine": {**of_engine(trainer), **own}}).engine


def test_service_and_what_is_left_survive_a_restart() -> None:
    world = World(SERVED).running("abc", n_max=3)
    told(world, 1, 70.0)
    before = world.trainer(1)
    assert before.served_s > 0
    own = stored(before)
    assert (own.served_s, own.counted_at, own.left) == (before.served_s, before.counted_at, 70.0)
    later = world.now + 100.0
    after = restore(SERVED, frozenset("ab"), [own], later).active[1]
    kept = replace(own, nodes=frozenset("ab"))
    assert after.served_s == kept.served(later) == before.served_s + 2 * (later - world.now + 1.0)
    assert after.served(later + 10.0) == after.served_s + 20.0


def test_a_trainer_of_which_nothing_was_counted_is_not_taken_to_have_had_nodes_since_1970() -> None:
    old = replace(World().running("ab").trainer(1), counted_at=None, served_s=0.0)
    state = restore(SERVED, frozenset("ab"), [old], now=1.7e9)
    assert state.active[1].served(1.7e9 + 5.0) == 0.0
    world = World(SERVED, now=1.7e9)
    world.state = state
    world.nodes(joined="c")
    assert world.trainer(1).served_s == 0.0
    assert world.trainer(1).served(world.now + 9.0) == pytest.approx(30.0)


def test_of_trainers_that_are_alike_those_with_least_to_do_are_considered() -> None:
    world = World(RANKED)
    for id_, samples in enumerate((900, 800, 10, 700), start=1):
        world.submit(id_, n_min=2, n_max=2, samples=samples)
    world.nodes(joined="ab")
    assert [world.held(id_) for id_ in (1, 2, 3, 4)] == ["", "", "ab", ""]


@pytest.mark.parametrize(("by", "expected"), [(WeightsBy.SPEC, None), (WeightsBy.SERVICE, 7 + TURN_S)])
def test_plans_are_made_anew_by_time_where_weights_change_by_it(
    by: WeightsBy, expected: float | None
) -> None:
    world = World(EngineSettings(weights_by=by)).running("ab")
    assert due(world.state, 7.0) is None, "it is alone"
    world.submit(2)
    assert due(world.state, 7.0) == expected


def test_by_their_specs_alone_trainers_count_as_before() -> None:
    world = World(EngineSettings(objective="efficiency")).running("ab", n_max=2)
    world.now += 1e6
    world.submit(2, n_max=2)
    assert (world.held(1), world.held(2)) == ("ab", "")
