"""Ranks follow nodes: those of a node's workers follow each other, and none is given twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.elastic.members.membership import Published

counts = st.lists(st.integers(1, 8), min_size=1, max_size=20)


@given(counts)
def test_every_worker_of_every_member_has_a_rank_of_its_own(workers: list[int]) -> None:
    nodes = tuple(f"n{i}" for i in range(len(workers)))
    published = Published(3, nodes, (), tuple(workers))
    ranks = [published.rank(node, i) for node, own in zip(nodes, workers, strict=True) for i in range(own)]
    assert ranks == list(range(published.size))
    assert published.nodes(ranks) == len(nodes)


@given(counts, st.data())
def test_ranks_are_on_as_many_nodes_as_they_come_from(workers: list[int], data: st.DataObject) -> None:
    nodes = tuple(f"n{i}" for i in range(len(workers)))
    published = Published(3, nodes, (), tuple(workers))
    some = data.draw(st.sets(st.sampled_from(range(len(nodes)))))
    ranks = [published.rank(nodes[i], data.draw(st.integers(0, workers[i] - 1))) for i in some]
    assert published.nodes(ranks) == len(some)


def test_without_numbers_each_member_runs_one_worker() -> None:
    published = Published(1, ("b", "a"), ("c",))
    assert (published.size, published.rank("a", 0), published.nodes((0, 1))) == (2, 1, 2)
    with pytest.raises(ValueError, match="tuple"):
        published.rank("c", 0)
