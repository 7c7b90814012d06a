"""Which nodes are given up for main jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Claim
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.nodes.vacate import choose

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
