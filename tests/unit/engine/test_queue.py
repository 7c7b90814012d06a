"""The queue against a plain sorted list, and against plans over all trainers that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.allocate import knapsack
from bftrainer.engine.question import problem_of
from bftrainer.engine.queueing.queue import TrainerQueue
from bftrainer.engine.state import State
from bftrainer.engine.step import step
from bftrainer.model.events import Measured
from bftrainer.model.policy import EngineSettings
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, RescaleCosts, Trainer, TrainerSpec

BASE = TrainerSpec(
    name="t",
    command=("train",),
    n_min=1,
    n_max=3,
    curve=((1, 1.0), (3, 3.2), (5, 6.0)),
    costs=RescaleCosts(),
    user="ann",
)
OTHERS = [
    replace(BASE, **changes)
    for changes in (
        {"n_min": 2},
        {"n_max": 5},
        {"sizes": AllowedSizes(listed=(1, 3))},
        {"curve": ((1, 1.0), (4, 9.0))},
        {"curves": (("", ((1, 5.0),)),)},
        {"costs": RescaleCosts(up=Cost(init_s=19.0))},
        {"weight": 2.0},
        {"priority": 3.0},
        {"user": "bob"},
    )
]
"""Trainers that differ from the first in one respect each."""
QUEUES = st.one_of(
    *(st.lists(st.sampled_from([BASE, other]), max_size=14) for other in OTHERS),
    st.lists(st.sampled_from([BASE, *OTHERS]), max_size=14),
)


def queue(specs: list[TrainerSpec]) -> list[Trainer]:
    """One trainer a spec, submitted one after the other; two at a time."""
    return [Trainer(id=i, spec=spec, submitted_at=float(i // 2)) for i, spec in enumerate(specs, start=1)]


def queue_of(trainers: list[Trainer]) -> TrainerQueue:
    found = TrainerQueue()
    for t in trainers:
        found = found.add(t)
    return found


@settings(max_examples=150, deadline=None)
@given(QUEUES, st.lists(st.integers(0, 13), max_size=20))
def test_it_is_a_list_sorted_by_priority_and_arrival(specs: list[TrainerSpec], gone: list[int]) -> None:
    plain = queue(specs)
    found = queue_of(plain)
    for i in [None, *gone]:
        if i is not None and i < len(plain):
            found = found.remove(plain.pop(i).id)
        in_order = sorted(plain, key=lambda t: (-t.spec.priority, t.id))
        assert list(found) == in_order
        assert len(found) == len(plain)
        assert [i for i in range(20) if i in found] == sorted(t.id for t in plain)
        assert found.eligible(1_000) == in_order
        assert [found.get(i) for i in range(20)] == [{t.id: t for t in plain}.get(i) for i in range(20)]
        assert TrainerQueue.of(plain) == found
        state = State(
            settings=EngineSettings(), active={t.id: t for t in plain[:2]}, waiting=queue_of(plain[2:])
        )
        assert {i: state.trainer(i) for i in state.trainers} == state.trainers
        assert state.trainer(77) is None


@given(QUEUES, st.integers(0, 13))
def test_a_trainer_that_comes_back_has_its_place_by_arrival(specs: list[TrainerSpec], which: int) -> None:
    plain = queue(specs)
    found = queue_of(plain)
    if plain:
        back = plain[which % len(plain)]
        found = found.remove(back.id).add(back)
    assert list(found) == list(queue_of(plain))
    assert found.eligible(1_000) == queue_of(plain).eligible(1_000)


def test_a_trainer_that_does_not_wait_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        queue_of(queue([])).remove(1)


def test_nothing_is_left_of_those_who_went() -> None:
    (only,) = queue([TrainerSpec(name="t", command=("x",), n_min=1, n_max=1)])
    assert queue_of([only]).remove(only.id) == TrainerQueue()


def test_of_trainers_that_are_alike_only_as_many_are_eligible_as_there_is_room_for() -> None:
    alike = queue([TrainerSpec(name=f"t{i}", command=("x",), n_min=3, n_max=9) for i in range(50)])
    found = queue_of(alike)
    assert [t.id for t in found.eligible(11)] == [1, 2, 3]
    assert found.eligible(2) == []


def check_eligible(specs: list[TrainerSpec], pool: int, cap: int | None, ageing_s: float | None) -> None:
    """The best plan over the eligible is worth as much as the best plan over all."""
    waiting = queue_of(queue(specs))
    nodes = frozenset(f"n{i}" for i in range(pool))
    state = State(
        settings=EngineSettings(
            max_parallel=None, user_max_nodes=cap, ageing_s=ageing_s, objective="0.5*throughput+priority"
        ),
        pool=nodes,
        since=dict.fromkeys(nodes, 0.0),
    )
    over_all, over_eligible = (
        knapsack.allocate(problem_of(state, tuple(asked), 20.0)[0])
        for asked in (list(waiting), waiting.eligible(pool))
    )
    assert over_eligible.objective == pytest.approx(over_all.objective, rel=1e-9, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(QUEUES, st.integers(0, 6), st.sampled_from([None, 2]), st.sampled_from([None, 2.0]))
def test_every_trainer_that_could_get_nodes_in_the_best_plan_is_eligible(
    specs: list[TrainerSpec], pool: int, cap: int | None, ageing_s: float | None
) -> None:
    check_eligible(specs, pool, cap, ageing_s)


@pytest.mark.parametrize("other", OTHERS)
def test_trainers_that_differ_do_not_wait_behind_each_other(other: TrainerSpec) -> None:
    for pool in range(7):
        for first, second in ((BASE, other), (other, BASE)):
            for cap in (None, 2):
                check_eligible([first] * 7 + [second] * 7, pool, cap, None)


def test_what_has_been_measured_makes_a_difference() -> None:
    """Trainers that held nodes once differ from those that never ran."""
    spec = TrainerSpec(name="t", command=("x",), n_min=1, n_max=1)
    first, second = queue([spec, spec])
    state = State(settings=EngineSettings(), active={second.id: second})
    event = Measured(time=0.0, trainer=second.id, generation=0, point=(1, 9.0))
    fast = step(state, event, knapsack.allocate).state.active[second.id]
    assert [t.id for t in queue_of([first, fast]).eligible(1)] == [1, 2]
