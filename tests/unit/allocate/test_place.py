"""Which GPUs of which nodes a trainer gets for its count."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.allocate.place import Want, nodes_of, place
from bftrainer.allocate.rules import Rules
from bftrainer.model.gpus import gpus_of, node_of

FREELY = Rules(avoid_interference=False, users_share=True)
POOL = frozenset(gpu for node in ("a", "b", "c") for gpu in gpus_of(node, 4))


def gpus(text: str) -> frozenset[str]:
    """`a0 a1 b2` -> a:0, a:1, b:2."""
    return frozenset(f"{word[0]}:{word[1:]}" for word in text.split())


def on(placed: frozenset[str]) -> dict[str, int]:
    return dict(Counter(map(node_of, placed)))


def test_a_trainer_that_fits_on_a_node_is_on_one() -> None:
    taken = Want(trainer=1, count=1, held=gpus("a0"))
    assert on(place([taken, Want(trainer=2, count=4)], POOL, FREELY)[2]) == {"b": 4}


def test_the_node_on_which_it_fits_best_leaves_others_whole() -> None:
    held = [Want(trainer=1, count=1, held=gpus("a0")), Want(trainer=2, count=2, held=gpus("b0 b1"))]
    assert on(place([*held, Want(trainer=3, count=2)], POOL, FREELY)[3]) == {"b": 2}
    assert on(place([*held, Want(trainer=3, count=3)], POOL, FREELY)[3]) == {"a": 3}


def test_a_trainer_that_may_grow_has_the_emptiest_node_to_itself() -> None:
    held = [Want(trainer=1, count=1, held=gpus("a0")), Want(trainer=2, count=2, held=gpus("b0 b1"))]
    assert on(place([*held, Want(trainer=3, count=2, most=8)], POOL, FREELY)[3]) == {"c": 2}
    assert on(place([*held, Want(trainer=3, count=2, most=2)], POOL, FREELY)[3]) == {"b": 2}


def test_a_trainer_of_several_nodes_leaves_those_of_others_as_long_as_there_is_an_empty_one() -> None:
    held = Want(trainer=1, count=2, held=gpus("a0 a1"))
    placed = place([Want(trainer=2, count=6), held], POOL, Rules(users_share=True))
    assert nodes_of(placed[2]) == {"b", "c"}


def test_trainers_that_begin_small_can_all_grow_over_nodes() -> None:
    """Side by side on one node, one of them alone may go to others: they would interfere."""
    pool = frozenset(gpu for i in range(8) for gpu in gpus_of(f"n{i}", 4))
    first = place([Want(trainer=t, count=1, most=8) for t in range(4)], pool, Rules())
    grown = [Want(trainer=t, count=8, most=8, held=first[t]) for t in range(4)]
    assert [len(own) for own in place(grown, pool, Rules()).values()] == [8, 8, 8, 8]


def test_a_trainer_of_several_nodes_is_on_as_few_as_possible() -> None:
    assert sorted(on(place([Want(trainer=1, count=6)], POOL, FREELY)[1]).values()) == [2, 4]


def test_what_grows_keeps_what_it_has_and_takes_its_own_nodes_first() -> None:
    want = Want(trainer=1, count=5, held=gpus("b0 b1"))
    placed = place([want], POOL, FREELY)[1]
    assert placed > want.held
    assert on(placed)["b"] == 4


def test_what_shrinks_keeps_the_fewest_nodes() -> None:
    want = Want(trainer=1, count=3, held=gpus("a0 b0 b1 b2 c0 c1"))
    assert place([want], POOL, FREELY)[1] == gpus("b0 b1 b2")


def test_what_shrinks_keeps_what_it_trains_on() -> None:
    want = Want(trainer=1, count=2, held=gpus("a0 a1 a2 b0 b1"), training=gpus("b0 b1"))
    assert place([want], POOL, FREELY)[1] == gpus("b0 b1")


def test_whole_nodes_are_wholly_free_ones() -> None:
    part = Want(trainer=1, count=1, held=gpus("a0"))
    placed = place([part, Want(trainer=2, count=8, whole=4)], POOL, FREELY)
    assert on(placed[2]) == {"b": 4, "c": 4}


def test_a_node_that_is_not_whole_any_more_is_completed() -> None:
    held = gpus("a0 a1 a2 a3 b0 b1 b3")
    assert place([Want(trainer=1, count=8, held=held, whole=4)], POOL, FREELY)[1] == held | gpus("b2")


def test_users_are_kept_apart_unless_they_may_share() -> None:
    wants = [Want(trainer=1, count=1, held=gpus("a0"), user="anna"), Want(trainer=2, count=3, user="ben")]
    pool = frozenset(gpus_of("a", 4)) | frozenset(gpus_of("b", 2))
    assert on(place(wants, pool, FREELY)[2]) == {"a": 3}
    assert on(place(wants, pool, Rules(users_share=False))[2]) == {"b": 2}, "fewer than asked for"


def test_trainers_of_several_nodes_do_not_meet_where_they_would_interfere() -> None:
    wants = [Want(trainer=1, count=5, held=gpus("a0 a1 a2 a3 b0")), Want(trainer=2, count=6)]
    apart = place(wants, POOL, Rules(users_share=True))
    assert nodes_of(apart[2]).isdisjoint(nodes_of(apart[1]))
    assert len(apart[2]) == 4, "all that is left to it"
    assert len(place(wants, POOL, FREELY)[2]) == 6


def test_gpus_that_a_trainer_may_not_have_go_to_others() -> None:
    wants = [Want(trainer=1, count=2, barred=frozenset(gpus_of("a", 4)))]
    assert on(place(wants, POOL, FREELY)[1]) == {"b": 2}


def test_more_than_there_is_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="13 GPUs asked of a pool of 12"):
        place([Want(trainer=1, count=13)], POOL, FREELY)


@st.composite
def boards(draw: st.DrawFn) -> tuple[list[Want], frozenset[str], Rules]:
    """Nodes of up to 4 GPUs, and trainers that hold some, anyhow."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    pool = [gpu for i, n in enumerate(sizes) for gpu in gpus_of(f"n{i}", n)]
    owner = draw(st.lists(st.integers(0, 3), min_size=len(pool), max_size=len(pool)))
    left, wants = len(pool), []
    for trainer in range(1, draw(st.integers(1, 3)) + 1):
        held = frozenset(gpu for gpu, own in zip(pool, owner, strict=True) if own == trainer)
        count = draw(st.integers(0, left))
        left -= count
        wants.append(Want(trainer=trainer, count=count, held=held, user=draw(st.sampled_from(["x", "y"]))))
    rules = Rules(avoid_interference=draw(st.booleans()), users_share=draw(st.booleans()))
    return wants, frozenset(pool), rules


@settings(max_examples=300, deadline=None)
@given(boards())
def test_any_placement_keeps_what_is_held_and_breaks_no_rule_anew(
    board: tuple[list[Want], frozenset[str], Rules],
) -> None:
    wants, pool, rules = board
    placed = place(wants, pool, rules)
    taken = [gpu for own in placed.values() for gpu in own]
    assert len(taken) == len(set(taken))
    assert set(taken) <= pool
    for want in wants:
        own = placed[want.trainer]
        assert own <= want.held if want.count < len(want.held) else own >= want.held, "nobody migrates"
        assert len(own) <= want.count
        if rules == FREELY:
            assert len(own) == want.count
    _no_new_neighbours(wants, placed, rules)


def _no_new_neighbours(wants: list[Want], placed: dict[int, frozenset[str]], rules: Rules) -> None:
    """Two trainers that may not be on one node are so only if they were before."""
    for one in wants:
        for other in wants:
            both = nodes_of(placed[one.trainer]) & nodes_of(placed[other.trainer])
            if one.trainer >= other.trainer or both <= nodes_of(one.held) & nodes_of(other.held):
                continue
            assert rules.users_share or one.user == other.user
            wide = all(len(nodes_of(placed[w.trainer])) > 1 for w in (one, other))
            assert not (rules.avoid_interference and wide)
