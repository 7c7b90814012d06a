"""The placement of trials' workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.search.plan.model.placement import PlacementError, nodes_needed, place

FOUR = dict.fromkeys("abcd", 4)


def test_small_trials_stand_together_on_one_node() -> None:
    assert place({"x": 2, "y": 2}, FOUR, {}) == {"x": {"a": 2}, "y": {"a": 2}}


def test_the_place_in_which_least_is_left_over_is_taken() -> None:
    last = {"x": {"b": 3}}
    assert place({"x": 3, "y": 1}, FOUR, last)["y"] == {"b": 1}


def test_a_trial_larger_than_a_node_has_nodes_of_its_own() -> None:
    found = place({"big": 6, "x": 1}, FOUR, {"x": {"a": 1}})
    assert found == {"big": {"b": 4, "c": 2}, "x": {"a": 1}}


def test_what_need_not_change_stays() -> None:
    last = {"x": {"a": 2}, "y": {"b": 2}}
    assert place({"x": 2, "y": 2}, FOUR, last) == last


def test_a_trial_on_a_node_that_is_gone_moves() -> None:
    assert place({"x": 2}, {"b": 4}, {"x": {"a": 2}}) == {"x": {"b": 2}}


def test_a_scattered_trial_is_brought_together() -> None:
    assert place({"x": 2}, FOUR, {"x": {"a": 1, "b": 1}}) == {"x": {"a": 2}}


def test_smaller_trials_make_room_for_larger_ones() -> None:
    last = {"x": {"a": 1}, "y": {"b": 1}}
    found = place({"x": 1, "y": 1, "big": 4}, {"a": 4, "b": 4}, last)
    assert found["big"] in ({"a": 4}, {"b": 4})
    assert found["x"] == found["y"] and found["x"].keys().isdisjoint(found["big"])


def test_a_place_that_is_reserved_stays_reserved() -> None:
    last = {"x": {"a": 1}, "y": {"b": 1}}
    found = place({"x": 1, "y": 1, "big": 4}, {"a": 4, "b": 4}, last, frozenset({"x"}))
    assert found == {"x": {"a": 1}, "y": {"a": 1}, "big": {"b": 4}}


def test_a_large_trial_gets_several_nodes_from_smaller_ones() -> None:
    last = {t: {n: 1} for t, n in zip("wxyz", "abcd", strict=True)}
    found = place({**dict.fromkeys("wxyz", 1), "big": 12}, FOUR, last)
    assert len(found["big"]) == 3
    assert len({node for t in "wxyz" for node in found[t]}) == 1


@pytest.mark.parametrize(
    ("wanted", "nodes", "reserved", "said"),
    [
        ({"x": 5, "y": 4}, {"a": 4, "b": 4}, frozenset(), "finds no room"),
        ({"x": 0}, FOUR, frozenset(), "wants 0 workers"),
        ({"x": 1}, {"a": 4, "b": 2}, frozenset(), "one size"),
        ({"x": 1}, FOUR, frozenset({"x"}), "on its way"),
    ],
)
def test_what_does_not_fit_is_said(
    wanted: dict[str, int], nodes: dict[str, int], reserved: frozenset[str], said: str
) -> None:
    with pytest.raises(PlacementError, match=said):
        place(wanted, nodes, {}, reserved)


@settings(deadline=None, max_examples=300)
@given(
    size=st.integers(1, 8),
    workers=st.integers(1, 12),
    trials=st.integers(1, 12),
    old=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 30)), max_size=12),
)
def test_trials_of_one_size_fit_on_the_nodes_that_they_need(
    size: int, workers: int, trials: int, old: list[tuple[int, int]]
) -> None:
    count = nodes_needed(trials, workers, size)
    nodes = {f"n{i:02}": size for i in range(count)}
    last = {f"t{i}": {f"n{at % count:02}": min(size, w)} for i, (w, at) in enumerate(old)}
    found = place({f"t{i}": workers for i in range(trials)}, nodes, last)
    used = {node: sum(where.get(node, 0) for where in found.values()) for node in nodes}
    assert all(used[node] <= size for node in nodes)
    assert all(sum(where.values()) == workers for where in found.values())
    assert all(len(where) == -(-workers // size) for where in found.values())
