"""Places of workers: each has one, few are moved, and large trainers get whole nodes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.allocate.goodput.places import Nodes, free_gpus, place

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=8)


def fitting(counts: list[int], size: int) -> dict[str, int]:
    """The first of these counts that fit together."""
    found, left = {}, size
    for i, count in enumerate(counts):
        found[f"t{i}"] = min(count, left)
        left -= found[f"t{i}"]
    return found


@settings(deadline=None)
@given(COUNTS, COUNTS, st.integers(2, 4), st.integers(1, 4))
def test_every_worker_has_a_gpu_of_its_own(
    before: list[int], after: list[int], nodes: int, gpus: int
) -> None:
    held = place(fitting(before, nodes * gpus), {}, nodes, gpus)
    counts = fitting(after, nodes * gpus)
    found = place(counts, held, nodes, gpus)
    assert {name: len(on) for name, on in found.items()} == {name: n for name, n in counts.items() if n}
    assert min(free_gpus(found, nodes, gpus)) >= 0
    for on in found.values():
        assert len(set(on)) == 1 + sum(a != b for a, b in pairwise(on)), "one run for each node"
    assert place(counts, found, nodes, gpus) == found, "who is placed stays"


def test_a_trainer_whose_number_is_unchanged_stays() -> None:
    held: dict[str, Nodes] = {"a": (0, 0), "b": (1,)}
    assert place({"a": 2, "b": 2, "c": 2}, held, 3, 4)["a"] == (0, 0)


def test_small_trainers_fill_a_node_before_they_open_another() -> None:
    found = place({"a": 3, "b": 1, "c": 2, "d": 2}, {}, 2, 4)
    assert found["a"] + found["b"] == (0, 0, 0, 0)
    assert found["c"] + found["d"] == (1, 1, 1, 1)


def test_those_in_the_way_of_whole_nodes_are_moved() -> None:
    held: dict[str, Nodes] = {"a": (0,), "b": (1,), "c": (2,)}
    found = place({"a": 1, "b": 1, "c": 1, "big": 8}, held, 3, 4)
    assert len(set(found["big"])) == 2
    assert sum(found[name] != held[name] for name in held) == 2


@settings(deadline=None)
@given(COUNTS, COUNTS, st.integers(2, 4), st.integers(1, 4))
def test_trainers_of_several_nodes_keep_apart(
    before: list[int], after: list[int], nodes: int, gpus: int
) -> None:
    held: dict[str, Nodes] = {}
    for counts in (fitting(before, nodes * gpus), fitting(after, nodes * gpus)):
        held = place(counts, held, nodes, gpus, apart=True)
        assert min(free_gpus(held, nodes, gpus)) >= 0
        assert all(len(on) <= counts[name] for name, on in held.items())
        wide = [set(on) for on in held.values() if len(set(on)) > 1]
        assert sum(map(len, wide)) == len(set().union(*wide)), "each of their nodes is one trainer's"


def test_who_would_meet_another_gets_fewer_workers() -> None:
    assert {name: len(on) for name, on in place({"a": 6, "b": 6}, {}, 3, 4).items()} == {"a": 6, "b": 6}
    assert place({"a": 6, "b": 6}, {}, 3, 4, apart=True) == {"a": (0, 0, 0, 0, 1, 1), "b": (2, 2, 2, 2)}
    fits = place({"a": 6, "b": 2}, {}, 2, 4, apart=True)
    assert fits["b"] == (1, 1), "on one node nobody is in the way"
