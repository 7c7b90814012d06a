"""What a problem says of nodes that are alike, and a plan of its distance to the bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.problem import Candidate, NodeGroup, Plan, PlanStatus, Problem

CANDIDATE = Candidate(trainer=1, n_min=1, n_max=4, current=2, curve=((4, 4.0),))
PROBLEM = Problem(pool_size=3, t_fwd_s=1.0, candidates=(CANDIDATE,))
GROUPS = (NodeGroup(size=2), NodeGroup(size=1, node_class="fat"))


def test_nodes_that_are_alike_are_one_part() -> None:
    assert PROBLEM.parts == (NodeGroup(size=3),)
    assert PROBLEM.held(CANDIDATE) == (2,)


def test_a_candidate_holds_nodes_of_groups_or_none() -> None:
    problem = replace(PROBLEM, groups=GROUPS)
    assert problem.parts == GROUPS
    assert problem.held(replace(CANDIDATE, held=(1, 1))) == (1, 1)
    assert problem.held(replace(CANDIDATE, current=0)) == (0, 0)


def test_a_class_without_a_curve_of_its_own_has_the_others_curve() -> None:
    own = replace(CANDIDATE, curves=(("fat", ((4, 8.0),)), ("thin", ())))
    assert [own.curve_on(name) for name in ("fat", "thin", "", "odd")] == [
        ((4, 8.0),),
        (),
        CANDIDATE.curve,
        CANDIDATE.curve,
    ]


@pytest.mark.parametrize(
    ("objective", "bound", "gap"), [(10.0, 10.0, 0.0), (8.0, 10.0, 0.25), (-8.0, -6.0, 0.25)]
)
def test_the_gap_is_relative_to_the_objective(objective: float, bound: float, gap: float) -> None:
    plan = Plan(allocator="milp", status=PlanStatus.FEASIBLE, counts={}, objective=objective, bound=bound)
    assert plan.gap == pytest.approx(gap)
    assert not plan.proven
    assert replace(plan, status=PlanStatus.OPTIMAL).proven
