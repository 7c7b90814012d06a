"""What goes wrong in the engine costs a plan, never the facts, and never the daemon."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.allocate import ALLOCATORS
from bftrainer.allocate import decide as allocate
from bftrainer.engine.contain import contained
from bftrainer.model.events import Measured, NodesChanged, TrainerEnded, TrainerSubmitted
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import Cost, Observations, Observed, Trainer, TrainerStatus
from tests.support.engine_world import World, make_spec, solve

LEFT = NodesChanged(time=9.0, left=frozenset("a"))


def broken(problem: Problem) -> Plan:
    raise ZeroDivisionError("no such plan")


def test_what_goes_well_is_the_engines_step() -> None:
    world = World().running("ab")
    found = contained(world.state, LEFT, solve)
    assert (found.error, found.culprits) == (None, ())
    assert found.step.plan is not None


def test_without_a_plan_the_facts_count() -> None:
    """A node that left is nobody's, and the others are told: the host has it back all the same."""
    world = World().running("ab")
    found = contained(world.state, LEFT, broken)
    assert isinstance(found.error, ZeroDivisionError)
    assert found.culprits == ()
    state = found.step.state
    assert (state.pool, state.active[1].nodes, state.active[1].members) == (
        frozenset("b"),
        frozenset("b"),
        ("b",),
    )
    assert len(found.step.actions) == 1
    assert found.step.plan is None
    arrived = contained(state, TrainerSubmitted(time=10.0, trainer=2, spec=make_spec()), broken)
    assert arrived.step.state.trainer(2) is not None


def test_who_causes_it_is_named_and_can_be_ended() -> None:
    world = World().running("ab")
    odd = Observations(speeds=((None, 1, Observed(1, ("fast",))),))  # type: ignore[arg-type]
    poison = Trainer(id=2, spec=make_spec(curve=None), submitted_at=1.0, observed=odd)
    state = replace(world.state, active={**world.state.active, 2: poison})
    found = contained(state, LEFT, solve)
    assert found.error is not None
    assert [id_ for id_, _ in found.culprits] == [2]
    assert found.step.state.active[1].nodes == {"b"}
    end = TrainerEnded(time=10.0, trainer=2, generation=0, status=TrainerStatus.FAILED, reason="why")
    after = contained(found.step.state, end, solve)
    assert after.error is None
    assert after.step.ended is not None and after.step.ended.status is TrainerStatus.FAILED


def test_an_event_that_cannot_be_taken_changes_nothing() -> None:
    world = World().running("ab")
    odd = NodesChanged(time=9.0, left=None)  # type: ignore[arg-type]
    found = contained(world.state, odd, solve)
    assert found.error is not None
    assert found.step.state is world.state
    assert found.step.actions == ()


ANY = st.floats(allow_nan=True, allow_infinity=True)
NUMBERS = st.one_of(ANY, st.sampled_from([0.0, 1e-12, 1e-6, 1.0, 1e12, 1e15, 1e300]))


@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
@pytest.mark.parametrize("objective", ["throughput", "efficiency", "priority"])
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(-5, 2**53), NUMBERS, NUMBERS), max_size=12))
def test_whatever_workers_report_there_is_a_plan(
    allocator: str, objective: str, reports: list[tuple[int, int, float, float]]
) -> None:
    own = EngineSettings(allocator=allocator, objective=objective, milp_time_limit_s=0.2)
    world = World(own)
    world.nodes(joined="abcd")
    for i in range(1, 4):
        world.submit(i, curve=None if i < 3 else (), weight=1e6 if i == 2 else 1.0, costs=None, n_max=4)
    for i, nodes, rate, seconds in reports:
        cost = Cost(stall_s=seconds, init_s=seconds)
        event = Measured(time=world.now, trainer=i, generation=0, point=(nodes, rate), up=cost, down=cost)
        found = contained(world.state, event, lambda problem: allocate(problem, own))
        assert found.error is None
        world.state = found.step.state
    left = replace(LEFT, time=world.now + 1.0)
    found = contained(world.state, left, lambda problem: allocate(problem, own))
    assert found.error is None
    plan = found.step.plan
    assert plan is not None and sum(plan.counts.values()) <= 3
    assert math.isfinite(plan.objective)
    assert all(0 < rate < math.inf for own in world.state.estimates.values() for _, rate in own[None].points)
