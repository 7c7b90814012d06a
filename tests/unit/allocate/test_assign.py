"""Counts to nodes: the right number, none twice, and no trainer migrates."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.allocate.assign import assign
from bftrainer.model.problem import Allocation

EMPTY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    counts: dict[int, int]
    current: dict[int, frozenset[str]]
    pool: frozenset[str]
    members: dict[int, frozenset[str]]
    barred: dict[int, frozenset[str]] = field(default_factory=dict)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A pool, the nodes that each trainer holds, those on which it trains, and counts that fit into the
    pool."""
    names = [f"n{i:02}" for i in range(draw(st.integers(0, 14)))]
    trainers = draw(st.lists(st.integers(1, 6), unique=True, max_size=5))
    owners = {name: draw(st.sampled_from([None, *trainers])) for name in names}
    current = {j: frozenset(n for n, owner in owners.items() if owner == j) for j in trainers}
    members = {
        j: frozenset(draw(st.lists(st.sampled_from(sorted(held)), unique=True)))
        for j, held in current.items()
        if held
    }
    counts, left = {}, len(names)
    for j in draw(st.permutations(trainers)):
        if draw(st.integers(0, 4)):  # the others end with nothing
            counts[j] = draw(st.integers(0, left))
            left -= counts[j]
    return Case(counts, {j: held for j, held in current.items() if held}, frozenset(names), members)


def run(case: Case) -> Allocation:
    return assign(case.counts, case.current, case.pool, case.members)


@given(cases())
def test_counts_are_met_with_nodes_of_the_pool_and_no_node_is_given_twice(case: Case) -> None:
    target = run(case)
    assert {j: len(nodes) for j, nodes in target.items()} == case.counts
    given_away = [node for nodes in target.values() for node in nodes]
    assert len(given_away) == len(set(given_away))
    assert set(given_away) <= case.pool


@given(cases())
def test_a_trainer_only_gains_or_only_loses(case: Case) -> None:
    for j, nodes in run(case).items():
        held = case.current.get(j, EMPTY)
        assert nodes <= held or held <= nodes


@given(cases())
def test_who_shrinks_keeps_members_first(case: Case) -> None:
    for j, nodes in run(case).items():
        members, held = case.members.get(j, EMPTY), case.current.get(j, EMPTY)
        if nodes - members and nodes < held:
            assert members <= nodes


@given(cases())
def test_same_input_same_nodes(case: Case) -> None:
    again = Case(
        counts=dict(case.counts),
        current=dict(reversed(case.current.items())),
        pool=frozenset(sorted(case.pool, reverse=True)),
        members=dict(reversed(case.members.items())),
    )
    assert run(case) == run(again)


@given(cases(), st.integers(1, 5))
def test_too_many_nodes_are_refused(case: Case, excess: int) -> None:
    counts = {**case.counts, 99: len(case.pool) - sum(case.counts.values()) + excess}
    with pytest.raises(ValueError, match=f"{len(case.pool) + excess} nodes asked of a pool"):
        assign(counts, case.current, case.pool, case.members)


def test_neighbours_by_name_and_the_largest_request_first() -> None:
    pool = frozenset(f"n{i}" for i in range(8))
    current = {1: frozenset({"n0", "n1", "n2"})}
    assert assign({1: 2, 2: 2, 3: 4}, current, pool) == {
        1: {"n0", "n1"},
        2: {"n6", "n7"},
        3: {"n2", "n3", "n4", "n5"},
    }


def test_a_node_that_is_only_starting_goes_before_a_member() -> None:
    current = {1: frozenset({"a", "b", "c"})}
    assert assign({1: 2}, current, frozenset("abc"), {1: frozenset({"b", "c"})}) == {1: {"b", "c"}}
    assert assign({1: 2}, current, frozenset("abc")) == {1: {"a", "b"}}


@given(cases(), st.data())
def test_no_trainer_gets_a_node_that_it_may_not_have(case: Case, data: st.DataObject) -> None:
    some = st.frozensets(st.sampled_from(sorted(case.pool))) if case.pool else st.just(EMPTY)
    barred = {j: data.draw(some) for j in case.counts}
    target = assign(case.counts, case.current, case.pool, case.members, barred)
    left = case.pool.difference(*target.values())
    for j, nodes in target.items():
        held = case.current.get(j, EMPTY)
        assert len(nodes) <= case.counts[j] and not (nodes - held) & barred[j]
        assert nodes <= held or held <= nodes
        assert len(nodes) == case.counts[j] or left <= barred[j], "it could have had more"


def test_nodes_that_one_trainer_may_not_have_go_to_others() -> None:
    pool = frozenset("abcdef")
    barred = {2: frozenset("def")}
    assert assign({1: 3, 2: 3}, {}, pool, {}, barred) == {1: set("def"), 2: set("abc")}
    # one that shrinks gives up what the other may have
    assert assign({1: 3, 2: 3}, {1: pool}, pool, {1: pool}, barred) == {1: set("def"), 2: set("abc")}
