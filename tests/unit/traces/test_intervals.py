"""Idle intervals, and the changes of the pool that follow from them."""

from __future__ import annotations

import pytest

from bftrainer.model.events import NodesChanged
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.synthetic import onoff
from tests.support.replays import generated

INF = float("inf")


def test_the_first_nodes_are_first_by_name() -> None:
    log = [Interval(0.0, 1.0, name) for name in ("b", "c", "a", "b")]
    assert intervals.first_nodes(log, 2) == {"a", "b"}
    assert intervals.first_nodes(log, None) == {"a", "b", "c"}
    with pytest.raises(LogError, match="4 nodes are asked for, and the log has 3"):
        intervals.first_nodes(log, 4)


def changed(time: float, joined: str = "", left: str = "") -> NodesChanged:
    return NodesChanged(time=time, joined=frozenset(joined), left=frozenset(left), reason="log")


def test_changes_begin_with_what_is_idle_then_and_end_before_the_end() -> None:
    log = [
        Interval(0.0, 5.0, "a"),  # over before
        Interval(0.0, 10.0, "b"),  # over at the very beginning: not idle then
        Interval(5.0, 20.0, "c"),
        Interval(12.0, 20.0, "d"),
        Interval(20.0, INF, "e"),
        Interval(25.0, 30.0, "f"),
        Interval(30.0, 40.0, "g"),
        Interval(0.0, 40.0, "x"),
    ]
    assert intervals.changes(log, frozenset("abcdefg"), 10.0, 30.0) == [
        changed(10.0, "c"),
        changed(12.0, "d"),
        changed(20.0, "e", "cd"),
        changed(25.0, "f"),
    ]


def test_changes_begin_even_where_nothing_is_idle() -> None:
    assert intervals.changes([], frozenset("a"), 3.0, 9.0) == [changed(3.0)]


def test_an_interval_without_length_makes_no_node_idle() -> None:
    log = [Interval(2.0, 2.0, "a")]
    assert all(not change.joined for change in intervals.changes(log, frozenset("a"), 0.0, 9.0))


def test_generated_changes_are_the_same_for_the_same_seed_and_make_sense() -> None:
    found = generated(5, 300.0, seed=3)
    assert found == generated(5, 300.0, seed=3) != generated(5, 300.0, seed=4)
    assert [change.time for change in found] == sorted(change.time for change in found)
    assert any(change.time == 0.0 and "n01" in change.joined for change in found)
    pool = frozenset[str]()
    for change in found:
        assert change.left <= pool
        assert not change.joined & pool
        pool = (pool - change.left) | change.joined
    assert (
        frozenset().union(*(change.joined for change in found))
        == onoff.names(5)
        == {f"n{i:02}" for i in range(1, 6)}
    )
