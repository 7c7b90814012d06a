"""Which idle nodes are left to main jobs: never more than there are, never fewer than asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Claim, Node, NodeState
from bftrainer.nodes.headroom.headroom import AUTO_SHARE, SETTLE_S, Kind, Spared, by_kind, keep, wanted
from bftrainer.settings.headroom import Headroom, headroom_of
from tests.support.nodes_world import World, run

CPU: Kind = (("batch",), "")
GPU: Kind = (("batch", "gpu"), "gpu:4")
NAMES = frozenset(f"n{i}" for i in range(12))
counts = st.dictionaries(st.sampled_from([CPU, GPU]), st.integers(0, 50))
headrooms = st.one_of(
    st.builds(lambda n: Headroom(nodes=n), st.integers(0, 60)),
    st.builds(lambda s: Headroom(share=s), st.floats(0, 1)),
    st.just(Headroom(auto=True)),
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("auto", Headroom(auto=True)),
        ("0", Headroom()),
        ("3", Headroom(nodes=3)),
        ("3 nodes", Headroom(nodes=3)),
        ("1 node", Headroom(nodes=1)),
        ("10%", Headroom(share=0.1)),
        ("0.25", Headroom(share=0.25)),
        ("100%", Headroom(share=1.0)),
    ],
)
def test_a_headroom_is_auto_a_number_or_a_share(text: str, meant: Headroom) -> None:
    assert headroom_of(text) == meant


@pytest.mark.parametrize("text", ["", "some", "-1", "110%", "1.5", "nan", "inf", "1.0", "9" * 40, "٣"])
def test_what_is_no_headroom_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="give auto, a number of nodes"):
        headroom_of(text)


@given(headrooms, counts, counts, st.floats(0, 1))
def test_at_most_all_nodes_of_a_kind_are_left(
    headroom: Headroom, usable: Mapping[Kind, int], learnt: Mapping[Kind, int], extra: float
) -> None:
    found = wanted(headroom, usable, learnt, extra)
    assert found.keys() == usable.keys()
    for kind, count in found.items():
        assert 0 <= count <= usable[kind]
        assert count >= min(headroom.nodes, usable[kind])
        assert count >= max(headroom.share, extra) * usable[kind] - 1e-6


@given(counts, counts)
def test_auto_leaves_what_was_learnt_up_to_its_share(
    usable: Mapping[Kind, int], learnt: Mapping[Kind, int]
) -> None:
    for kind, count in wanted(Headroom(auto=True), usable, learnt).items():
        assert count <= min(learnt.get(kind, 0), math.ceil(AUTO_SHARE * usable[kind]))


@given(
    st.sets(st.sampled_from(sorted(NAMES))),
    st.sets(st.sampled_from(sorted(NAMES))),
    st.sets(st.sampled_from(sorted(NAMES))),
    st.integers(0, 12),
)
def test_idle_nodes_are_left_first_and_just_the_missing_ones_are_claimed(
    usable: Collection[str], held: Collection[str], before: Collection[str], count: int
) -> None:
    fresh = {CPU: min(count, len(usable))}
    found = keep(
        Spared(nodes=frozenset(before)), fresh, {CPU: frozenset(usable)}, now=0.0, held=held, pool=held
    )
    assert found.nodes <= set(usable) - set(held)
    assert len(found.nodes) + sum(claim.count for claim in found.claims) == fresh[CPU]
    assert all(claim.nodes <= set(held) & set(usable) for claim in found.claims)
    if found.claims:
        assert found.nodes == set(usable) - set(held), "every idle node is left before one of ours goes"
    again = keep(found, fresh, {CPU: frozenset(usable)}, now=1.0, held=held, pool=held)
    assert again.nodes == found.nodes, "the same nodes stay left"


def test_less_is_left_only_after_less_has_been_enough_for_a_while() -> None:
    def at(now: float, before: Spared, count: int) -> Spared:
        return keep(before, {CPU: count}, {CPU: NAMES}, now=now, held=(), pool=())

    three = at(0.0, Spared(), 3)
    still = at(1.0, three, 2)
    assert still.total == 3
    assert at(1.0 + SETTLE_S - 0.1, still, 2).total == 3
    assert at(1.0 + SETTLE_S, still, 2).total == 2
    assert at(2.0, still, 4).total == 4, "more is left at once"
    needed = at(10.0, still, 3)
    assert at(1.0 + SETTLE_S, needed, 2).total == 3, "meanwhile three were needed again"


@pytest.mark.parametrize(
    ("count", "used", "held", "left", "asked"),
    [
        (1, {"n3": 0.25}, "", "n3", []),
        (1, {"n3": 0.5}, "", "n3", []),
        (1, {"n3": 0.75}, "", "n0 n3", []),
        (1, {"n2": 0.75, "n3": 0.75}, "", "n2 n3", []),
        (2, {"n3": 0.25}, "", "n0 n3", []),
        (1, {"n3": 0.25}, "n0 n1 n2 n3", "", ["n3"]),
        (1, {"n3": 0.75}, "n0 n1 n2 n3", "", ["n3", "n0 n1 n2"]),
        (1, {"n2": 0.75, "n3": 0.25}, "n0 n1 n2 n3", "", ["n3"]),
        (1, {"n2": 0.5, "n3": 0.25}, "n0 n1 n3", "n2", []),
        (1, {}, "n1 n2 n3", "n0", []),
    ],
)
def test_what_main_jobs_leave_of_a_node_is_left_to_them_before_idle_nodes(
    count: int, used: Mapping[str, float], held: str, left: str, asked: list[str]
) -> None:
    """Without us the scheduler would put small jobs there."""
    nodes = {CPU: {"n0", "n1", "n2", "n3"}}
    found = keep(Spared(), {CPU: count}, nodes, now=0.0, held=held.split(), pool=held.split(), used=used)
    assert sorted(found.nodes) == left.split()
    assert [" ".join(sorted(claim.nodes)) for claim in found.claims] == asked
    assert all(claim.count == 1 for claim in found.claims)


def test_of_single_gpus_those_beside_main_jobs_are_left_first_and_count_as_one_each() -> None:
    gpus = {CPU: {f"n{node}:{gpu}" for node in (1, 2) for gpu in range(4)} - {"n2:0", "n2:1"}}
    used = dict.fromkeys(("n2:2", "n2:3"), 0.5)
    found = [
        keep(Spared(), {CPU: count}, gpus, now=0.0, held=(), pool=(), used=used).nodes for count in (1, 2, 3)
    ]
    assert found == [{"n2:2"}, {"n2:2", "n2:3"}, {"n2:2", "n2:3", "n1:0"}]


def test_a_kind_is_the_partitions_and_the_gres() -> None:
    nodes = [
        Node(name="c1", state=NodeState.IDLE, partitions=("batch",)),
        Node(name="c2", state=NodeState.IDLE, partitions=("batch",)),
        Node(name="g1", state=NodeState.IDLE, partitions=("batch", "gpu"), gres="gpu:4"),
    ]
    assert by_kind(nodes, {"c2", "g1"}) == {CPU: {"c2"}, GPU: {"g1"}}


# over a scheduler in memory


def test_so_many_nodes_stay_idle_whatever_trainers_want(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 4, headroom=1)
        await world.turn()
        await world.submit(n_max=8)
        assert world.held() == "n1 n2 n3"
        assert world.nodes.state.reasons() == {
            "n0": "left to main jobs (headroom)", "n1": "", "n2": "", "n3": "",
        }  # fmt: skip
        await world.turn()
        spared = world.nodes.reserve.spared
        assert (spared.total, spared.usable, spared.free) == (1, 4, 1)

    run(scenario)


def test_when_a_main_job_takes_what_was_left_a_trainer_gives_up_another_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 4, headroom="25%")
        await world.turn()
        await world.submit(n_max=8)
        world.machine.take("n0")
        before = world.time
        events: list[NodesChanged] = []
        world.nodes.state._emit = lambda event: (  # type: ignore[func-returns-value]
            world.events.append(event),
            events.append(event) if isinstance(event, NodesChanged) else None,
        )
        await world.turn()
        assert len(world.held().split()) == 2, "one of three was given back"
        assert [(len(e.left), e.left == e.vacated, "headroom" in e.reason) for e in events] == [
            (1, True, True)
        ]
        for _ in range(5):
            await world.turn()
        assert len(world.held().split()) == 2, "and no more than one"
        assert world.time - before < SETTLE_S

    run(scenario)


def test_a_main_job_that_waits_comes_before_room_for_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 3, headroom=1)
        await world.turn()
        await world.submit(n_max=8)
        assert world.held() == "n1 n2"
        world.machine.take("n0")
        world.machine.claims = (Claim(job="17", nodes=frozenset({"n1", "n2"}), count=2),)
        await world.turn()
        assert world.held() == ""
        assert world.nodes.reserve.spared.usable == 0, "what a job has claimed is no room for another"

    run(scenario)


def test_a_headroom_that_is_made_smaller_gives_trainers_the_nodes_after_a_while(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 4, headroom=2)
        await world.turn()
        await world.submit(n_max=8)
        assert len(world.held().split()) == 2
        world.reload(headroom="0")
        await world.turn()
        await world.turn(SETTLE_S)
        assert len(world.held().split()) == 4

    run(scenario)


def test_a_node_that_is_given_back_or_cleared_is_on_its_way_and_no_other_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 4, headroom=1, vacate_s=5)
        await world.turn()
        await world.submit(n_max=8)
        ours = set(world.held().split())
        world.machine.take("n0")
        world.workers.on |= ours  # they take a moment to leave
        for _ in range(3):
            await world.nodes.watch.poll()
        (going,) = world.pilots.records.releasing
        world.machine.why[going] = "completing"  # an epilog runs there
        world.workers.on.clear()
        await world.settle()
        for _ in range(3):
            await world.turn()
        assert set(world.held().split()) == ours - {going}
        spared = world.nodes.reserve.spared
        assert (spared.usable, spared.free, spared.claims) == (3, 1, ())

    run(scenario)


def test_what_is_being_given_back_for_a_main_job_is_no_room_for_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 4, headroom=1, vacate_s=5)
        await world.turn()
        await world.submit(n_max=8)
        world.workers.on |= set(world.held().split())
        world.machine.take("n0")
        world.machine.claims = (Claim(job="17", nodes=frozenset({"n1"}), count=1),)
        await world.nodes.watch.poll()
        await world.nodes.watch.poll()
        assert "n1" in world.pilots.records.releasing
        spared = world.nodes.reserve.spared
        assert spared.usable == 2, "n2 and n3"
        world.workers.on.clear()
        world.machine.claims = ()
        await world.settle()

    run(scenario)
