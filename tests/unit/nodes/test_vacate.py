"""Which nodes are given up for main jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Claim
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Points, Trainer, TrainerSpec
from bftrainer.nodes.vacate import choose, spared
from bftrainer.performance import curve

NODES = [f"n{i}" for i in range(8)]


def trainer(id_: int, *nodes: str, n_min: int = 1, joining: str = "") -> Trainer:
    spec = TrainerSpec(name=f"t{id_}", command=("x",), n_min=n_min, n_max=8)
    members = tuple(n for n in nodes if n != joining)
    return Trainer(id=id_, spec=spec, submitted_at=0.0, nodes=frozenset(nodes), members=members)


def claim(count: int, *nodes: str) -> Claim:
    return Claim(job="7", nodes=frozenset(nodes), count=count)


LINEAR = ((8, 80.0),)
FLAT = ((1, 10.0), (8, 11.0))


def test_nodes_that_train_nothing_go_first_then_those_that_are_missed_least() -> None:
    trainers = [trainer(1, "n1", "n2"), trainer(2, "n3", "n4")]
    held = frozenset(NODES[:6])
    curves = {1: LINEAR, 2: FLAT}
    assert choose([claim(2, *NODES)], held, trainers, curves) == {"n0", "n5"}
    assert choose([claim(3, *NODES)], held, trainers, curves) == {"n0", "n5", "n3"}
    assert choose([claim(1, "n1", "n2")], held, trainers, curves) == {"n1"}


def test_a_trainer_that_falls_below_its_least_gives_all_it_has_before_others_suffer() -> None:
    trainers = [trainer(1, "n0", "n1", "n2", n_min=3), trainer(2, *NODES[3:])]
    curves = {1: ((3, 3.0),), 2: LINEAR}
    assert choose([claim(3, *NODES)], frozenset(NODES), trainers, curves) == {"n0", "n1", "n2"}


def test_a_trainer_that_goes_down_a_size_gives_what_it_cannot_use_before_others_suffer() -> None:
    """By hand: its first node costs it half of its speed, the second nothing."""
    first = trainer(1, *NODES[:4])
    powers = replace(first, spec=replace(first.spec, sizes=AllowedSizes(listed=(1, 2, 4, 8))))
    trainers = [powers, trainer(2, *NODES[4:])]
    held, curves = frozenset(NODES), {1: ((4, 4.0),), 2: ((4, 12.0),)}
    assert choose([claim(2, *NODES)], held, trainers, curves) == {"n0", "n1"}
    assert choose([claim(1, *NODES)], held, [first, *trainers[1:]], curves) == {"n0"}
    curves = {1: ((4, 8.0),), 2: ((4, 12.0),)}  # the step down costs 4, a node of the other 3
    assert choose([claim(1, *NODES)], held, trainers, curves) == {"n4"}


def test_a_node_that_is_only_joining_goes_before_a_member() -> None:
    trainers = [trainer(1, "n0", "n1", joining="n1")]
    assert choose([claim(1, "n0", "n1")], frozenset(NODES), trainers, {1: LINEAR}) == {"n1"}


def test_a_claim_that_cannot_be_met_takes_nothing_and_leaves_the_next_its_turn() -> None:
    claims = [claim(3, "n0", "n1"), claim(1, "n0")]
    assert choose(claims, frozenset(NODES), [], {}) == {"n0"}


def test_what_is_going_already_counts() -> None:
    """The scheduler shows a pilot for a moment after it was told to end."""
    trainers = [trainer(1, "n0", "n1", "n2")]
    held = frozenset(NODES[:6])
    found = choose([claim(2, *NODES)], held, trainers, {1: LINEAR}, releasing={"n4", "n5"})
    assert found == {"n4", "n5"}


def test_of_nodes_at_one_price_the_one_that_was_held_longest_goes_first() -> None:
    """A scheduler that preempts takes the same one, if it decides at this moment."""
    trainers = [trainer(1, "n0", "n1", "n2"), trainer(2, "n3", "n4", "n5")]
    held, curves = frozenset(NODES[:6]), {1: FLAT, 2: LINEAR}
    since = {"n0": 3.0, "n1": 2.0, "n3": 1.0}  # n2 is only on its way
    assert choose([claim(1, *NODES)], held, trainers, curves, since=since) == {"n1"}
    assert choose([claim(2, *NODES)], held, trainers, curves, since=since) == {"n0", "n1"}
    assert choose([claim(1, *NODES)], held, [], {}, since=since) == {"n3"}


def test_what_the_scheduler_takes_by_itself_spares_as_many_nodes_of_the_same_claims() -> None:
    going = ["n0", "n1", "n4"]
    both = [claim(2, "n0", "n1", "n2", "n3"), claim(1, "n4", "n5")]
    assert spared(going, ["n2"], both) == {"n1"}
    assert spared(going, ["n2", "n3"], both) == {"n0", "n1"}
    assert spared(going, ["n5", "n2"], both) == {"n1", "n4"}
    assert spared(going, ["n0", "n7"], both) == set(), "one goes already, the other is nobody's"
    assert spared(going, ["n2", "n3", "n2"], both) == {"n0", "n1"}


@given(
    st.lists(st.tuples(st.integers(1, 8), st.sets(st.sampled_from(NODES))), max_size=4),
    st.sets(st.sampled_from(NODES)),
    st.integers(0, 8),
)
def test_every_claim_gets_all_that_it_needs_or_nothing(
    wanted: list[tuple[int, set[str]]], held: set[str], split: int
) -> None:
    trainers = [trainer(1, *NODES[:split]), trainer(2, *NODES[split:])]
    given_up: frozenset[str] = frozenset()
    claims: list[Claim] = []
    for count, nodes in wanted:
        before = given_up
        claims.append(claim(count, *nodes))
        given_up = choose(claims, frozenset(held), trainers, {1: LINEAR, 2: FLAT})
        more = given_up - before
        enough = len((nodes & held) - before) >= count
        assert before <= given_up <= held
        assert more <= nodes and len(more) == (count if enough else 0)


def one_by_one(
    claims: list[Claim], held: set[str], trainers: list[Trainer], curves: dict[int, Points], going: set[str]
) -> set[str]:
    """What `choose` says, in the simplest way."""
    owner = {node: t for t in trainers for node in t.nodes}
    size, given_up = {t.id: len(t.nodes) for t in trainers}, set[str]()

    def worth(t: Trainer, count: int) -> float:
        return curve.rate(curves[t.id], count)

    def price(node: str) -> tuple[int, float, bool, str]:
        t = owner.get(node)
        if node in going or t is None:
            return (0 if node in going else 1), 0.0, False, node
        return 2, worth(t, size[t.id]) - worth(t, size[t.id] - 1), node in t.members, node

    for wish in claims:
        if len((wish.nodes & held) - given_up) < wish.count:
            continue
        for _ in range(wish.count):
            node = min((wish.nodes & held) - given_up, key=price)
            given_up.add(node)
            if node in owner:
                size[owner[node].id] -= 1
    return given_up


@given(
    st.lists(st.tuples(st.integers(1, 8), st.sets(st.sampled_from(NODES))), max_size=4),
    st.sets(st.sampled_from(NODES)),
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
    st.sets(st.sampled_from(NODES)),
    st.sampled_from(NODES),
)
def test_where_no_trainer_loses_speed_in_steps_it_compares_all_nodes_for_each(
    wanted: list[tuple[int, set[str]]],
    held: set[str],
    split: tuple[int, int],
    going: set[str],
    joining: str,
) -> None:
    first, second = sorted(split)
    trainers = [
        trainer(1, *NODES[:first], joining=joining),
        trainer(2, *NODES[first:second], joining=joining),
    ]
    claims = [claim(count, *nodes) for count, nodes in wanted]
    curves = {1: LINEAR, 2: FLAT}
    found = choose(claims, frozenset(held), trainers, curves, releasing=going & held)
    assert found == one_by_one(claims, held, trainers, curves, going & held)


def stepped(id_: int, nodes: list[str], sizes: AllowedSizes) -> Trainer:
    found = trainer(id_, *nodes)
    least = sizes.listed[0] if sizes.listed else sizes.multiple_of
    return replace(found, spec=replace(found.spec, n_min=least, sizes=sizes))


def test_two_nodes_of_one_trainer_may_cost_less_than_one_by_one() -> None:
    """By hand: the first trainer loses 2 for its first node, then nothing, the other 1.5 for each."""
    powers = stepped(1, NODES[:4], AllowedSizes(listed=(1, 2, 4)))
    trainers = [powers, trainer(2, *NODES[4:])]
    held, curves = frozenset(NODES), {1: ((4, 4.0),), 2: ((4, 6.0),)}
    assert choose([claim(1, *NODES)], held, trainers, curves) == {"n4"}
    assert choose([claim(2, *NODES)], held, trainers, curves) == {"n0", "n1"}
    assert choose([claim(3, *NODES)], held, trainers, curves) == {"n0", "n1", "n2"}
    alike = [claim(1, *NODES), claim(1, *NODES)]
    assert choose(alike, held, trainers, curves) == {"n0", "n1"}, "what alike jobs need is chosen at once"
    joining = replace(powers, members=("n0", "n1"))
    assert choose([claim(2, *NODES)], held, [joining, trainers[1]], curves) == {"n2", "n3"}
    assert choose([claim(3, *NODES)], held - {"n7"}, trainers, curves, releasing={"n6"}) == {"n0", "n1", "n6"}


SIZES = [
    AllowedSizes(),
    AllowedSizes(multiple_of=2),
    AllowedSizes(multiple_of=3),
    AllowedSizes(listed=(1, 2, 4, 8)),
    AllowedSizes(listed=(3, 4)),
]


@given(
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
    st.tuples(*(st.sampled_from(SIZES) for _ in range(3))),
    st.tuples(*(st.integers(1, 9) for _ in range(3))),
    st.sets(st.sampled_from(NODES), min_size=2),
    st.integers(1, 8),
)
def test_no_other_nodes_for_a_claim_cost_less(
    split: tuple[int, int],
    sizes: tuple[AllowedSizes, ...],
    speeds: tuple[int, ...],
    free: set[str],
    count: int,
) -> None:
    first, second = sorted(split)
    shares = [NODES[:first], NODES[first:second], NODES[second:]]
    trainers = [stepped(i, own, allowed) for i, (own, allowed) in enumerate(zip(shares, sizes, strict=True))]
    curves: dict[int, Points] = {i: ((2, 2.0 * speed), (8, 5.0 * speed)) for i, speed in enumerate(speeds)}

    def speed_without(gone: Collection[str]) -> float:
        return sum(curve.rate(curves[t.id], t.spec.fitting(len(t.nodes.difference(gone)))) for t in trainers)

    found = choose([claim(count, *free)], frozenset(NODES), trainers, curves)
    if count > len(free):
        assert not found
        return
    assert len(found) == count and found <= free
    best = max(speed_without(gone) for gone in combinations(sorted(free), count))
    assert speed_without(found) == pytest.approx(best)
