"""The curve of headroom: what a log's main jobs find idle, with so many nodes left to them."""

from __future__ import annotations

import headroom  # of benchmarks/, see pythonpath in pyproject.toml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.events import NodesChanged

NODES = frozenset(f"n{i:02}" for i in range(20))


def machine(*taken: tuple[float, int]) -> list[NodesChanged]:
    """Twenty idle nodes; at these times so many are taken, which come back half an hour later."""
    changes = [NodesChanged(time=0.0, joined=NODES)]
    names = sorted(NODES)
    for time, count in taken:
        some, names = frozenset(names[:count]), names[count:] + names[:count]
        changes += [NodesChanged(time=time, left=some), NodesChanged(time=time + 1800, joined=some)]
    return sorted(changes, key=lambda change: change.time)


def test_a_node_that_is_left_serves_single_jobs_and_not_those_that_come_too_soon() -> None:
    log = machine((1000.0, 1), (1000.5, 1), (1010.0, 1))
    assert headroom.play(log, "0", 1.0).delays == [1.0, 1.0, 1.0]
    assert headroom.play(log, "1", 1.0).delays == [0.0, 1.0, 0.0]
    assert headroom.play(log, "2", 1.0).delays == [0.0, 0.0, 0.0]


def test_what_is_left_is_not_harvested() -> None:
    log = [*machine((1000.0, 0))[:1], NodesChanged(time=1000.0)]
    assert headroom.play(log, "0", 1.0).node_s == pytest.approx(20_000)
    assert headroom.play(log, "5", 1.0).node_s == pytest.approx(15_000)
    assert headroom.play(log, "10%", 1.0).node_s == pytest.approx(18_000)


@given(
    st.lists(st.tuples(st.floats(1, 20_000), st.integers(1, 3)), max_size=6, unique_by=lambda one: one[0]),
    st.sampled_from(headroom.CURVE),
    st.floats(0.1, 60),
)
def test_no_node_is_lost_or_made(taken: list[tuple[float, int]], setting: str, back_s: float) -> None:
    log = machine(*taken)
    found = headroom.play(log, setting, back_s)
    found.until(1e6)
    assert found.free + found.held == len(NODES)
    assert len(found.delays) == len(taken)
    assert found.node_s <= len(NODES) * 1e6
