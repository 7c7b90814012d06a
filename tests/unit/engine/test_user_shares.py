"""Users share the pool by weights, and what one cannot use goes to the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bftrainer.engine.due import PlansDue, due
from bftrainer.engine.queueing.fair_shares import STEADY, TURN_S, divided
from bftrainer.engine.queueing.waiting import Shortage
from bftrainer.model.events import NodesChanged, PlanDue
from bftrainer.model.gpus import gpus_of, node_of
from bftrainer.model.policy import EngineSettings, Share, ShareNodes
from bftrainer.model.trainer import Cost, RescaleCosts
from bftrainer.replay.loop import replay
from bftrainer.replay.workload import Submission
from tests.support.engine_world import World
from tests.support.replays import generated, trainer


def test_the_pool_is_divided_by_weights_up_to_what_each_demands() -> None:
    weights = {"a": 2.0, "b": 1.0, "c": 1.0}
    assert divided(16, {"a": 99, "b": 99, "c": 99}, weights) == {"a": 8, "b": 4, "c": 4}
    assert divided(16, {"a": 2, "b": 99, "c": 99}, weights) == {"a": 2, "b": 7, "c": 7}
    assert divided(16, {"a": 99, "b": 1, "c": 99}, weights) == {"a": 10, "b": 1, "c": 5}
    assert divided(16, {"a": 1, "b": 2, "c": 3}, weights) == {"a": 1, "b": 2, "c": 3}
    assert divided(0, {"a": 1}, weights) == {"a": 0}


def held(world: World, *trainers: int) -> int:
    return sum(len(world.held(id_)) for id_ in trainers)


@pytest.mark.parametrize("max_parallel", [20, None])
def test_two_users_with_many_trainers_share_by_their_weights(max_parallel: int | None) -> None:
    shares = {"ann": 3.0, "others": 1.0}
    world = World(EngineSettings(max_parallel=max_parallel, user_shares=shares))
    world.nodes(joined="abcdefghijkl")
    for id_ in range(1, 7):
        world.submit(id_, user="ann", rate=1.0, n_max=4)
    for id_ in range(7, 13):
        world.submit(id_, user="bob", rate=50.0, n_max=4)  # the objective alone would give it all
    assert held(world, *range(1, 7)) == 9
    assert held(world, *range(7, 13)) == 3


def test_a_user_with_one_trainer_gets_its_share_beside_one_with_many() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcdefgh")
    for id_ in range(1, 30):
        world.submit(id_, user="ann", rate=50.0, n_max=4)
    world.submit(99, user="bob", rate=1.0, n_max=2)
    assert held(world, 99) == 2
    assert held(world, *range(1, 30)) == 6, "what bob cannot use is ann's"
    world.end(99)
    assert held(world, *range(1, 30)) == 8


def test_a_share_that_is_too_small_for_a_trainer_still_lets_it_compete() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0, "bob": 0.01}))
    world.nodes(joined="abcdefgh")
    world.submit(1, user="bob", rate=50.0, n_min=4, n_max=4)
    world.submit(2, user="ann", rate=1.0, n_max=8)
    assert held(world, 1) == 4


@pytest.mark.parametrize(("nodes", "max_parallel"), [(2, None), (4, 10), (9, 10)])
def test_over_time_users_have_their_shares_of_nodes_that_come_and_go(
    nodes: int, max_parallel: int | None
) -> None:
    """Ten minutes of a pool of which one share is seldom a whole number of nodes."""
    settings = EngineSettings(user_shares={"bob": 3.0, "others": 1.0}, max_parallel=max_parallel)
    spec = trainer(samples=600)
    work = [Submission(time=0.0, spec=replace(spec, user=user)) for _ in range(60) for user in ("ann", "bob")]
    done = replay(generated(nodes, 600.0), work, settings, 0.0, 600.0)
    held = Counter[str]()
    for own in done.trainers.values():
        held[own.spec.user] += int(own.node_s)
    assert held["bob"] / held.total() == pytest.approx(0.75, abs=0.025)
    assert done.tally.idle_node_s < 0.02 * done.tally.node_s


def test_users_whose_shares_are_too_small_for_their_trainers_take_turns() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    world.submit(1, user="ann", n_min=4, n_max=4)
    world.submit(2, user="bob", n_max=4)
    world.submit(3, user="bob", n_max=4)
    seconds = Counter[str]()
    for _ in range(100):
        before = world.now
        world.now += 20.0
        seconds["ann"] += round(held(world, 1) * (world.now - before))
        seconds["bob"] += round(held(world, 2, 3) * (world.now - before))
        world.submit(9, user="bob", n_min=4, n_max=4)
        world.end(9)
        assert held(world, 1, 2, 3) == 4
    assert seconds["ann"] / seconds.total() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("away_s", [0.0, 5.0])
def test_whoever_ends_its_trainers_and_submits_new_ones_has_no_more_than_its_share(away_s: float) -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    world.submit(1, user="bob", n_max=4)
    seconds = Counter[str]()
    for id_ in range(2, 102):
        world.submit(id_, user="ann", n_min=4, n_max=4)
        for spell_s, there in ((40.0, True), (away_s, False)):
            seconds["ann"] += round(held(world, id_) * spell_s) if there else 0
            seconds["bob"] += round(held(world, 1) * spell_s)
            world.now += spell_s
            if there:
                world.end(id_)
    assert seconds["bob"] / seconds.total() >= 0.45


def test_a_trainer_does_not_shrink_and_grow_each_time_another_user_comes_and_goes() -> None:
    """Each change may cost it a restart: users that come and go all the time would leave it no time to
    train."""
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    costly = RescaleCosts(up=Cost(stall_s=12.0), down=Cost(stall_s=8.0))
    world.submit(1, user="bob", n_max=4, costs=costly)
    world.ready(1, world.held(1))
    for id_ in range(2, 6):
        world.submit(id_, user="ann", n_min=2, n_max=4)
        assert len(world.held(id_)) == 2
        world.end(id_)
        assert held(world, 1) == 2, "it was made to shrink a moment ago"
    moment = due(world.state, world.now)
    assert moment is not None and moment == pytest.approx(STEADY * 20.0, abs=10.0)
    world.now = moment
    world.take(PlanDue(time=0.0))
    assert held(world, 1) == 4
    assert due(world.state, world.now) is None


def test_a_trainer_that_was_not_made_to_shrink_lately_grows_at_once() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    costly = RescaleCosts(up=Cost(stall_s=12.0), down=Cost(stall_s=8.0))
    world.submit(1, user="bob", n_max=4, costs=costly)
    world.ready(1, world.held(1))
    world.submit(2, user="ann", n_min=2, n_max=4)
    world.now += 600.0
    world.end(2)
    assert held(world, 1) == 4


def test_what_was_owed_long_ago_counts_no_more() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    world.submit(1, user="bob", n_max=4)
    world.submit(2, user="ann", n_min=4, n_max=4)
    world.now += 40.0
    world.end(2)
    assert world.state.ledger.owed["ann"] == pytest.approx(-200.0, abs=10.0)
    world.now += 6 * 3600.0
    world.nodes(joined="e")
    assert "ann" not in world.state.ledger.owed


def test_who_waits_for_its_turn_has_it_though_nothing_else_happens() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    world.submit(1, user="bob", n_max=4)
    assert not world.state.ledger.has_turns
    world.submit(2, user="ann", n_min=4, n_max=4)
    assert held(world, 1) == 0 and world.state.ledger.has_turns
    world.now += TURN_S
    world.take(PlanDue(time=0.0))
    assert held(world, 1) == 4


def test_users_take_turns_in_a_replay_as_under_a_daemon_though_nothing_else_happens() -> None:
    settings = EngineSettings(max_parallel=None, user_shares={"others": 1.0})
    spec = trainer(n_max=4)
    work = [
        Submission(time=0.0, spec=replace(spec, user="bob")),
        Submission(time=0.0, spec=replace(spec, user="ann", n_min=4)),
    ]
    nodes = [NodesChanged(time=0.0, joined=frozenset("abcd"))]
    held = {
        own.spec.user: own.node_s for own in replay(nodes, work, settings, 0.0, 36_000.0).trainers.values()
    }
    assert held["ann"] == pytest.approx(held["bob"], rel=0.1)


def test_a_plan_that_is_due_earlier_starts_no_second_series() -> None:
    """Else a daemon and a replay would plan more and more often, as long as somebody waits for a turn."""
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcd")
    world.submit(1, user="bob", n_max=4)
    world.submit(2, user="ann", n_min=4, n_max=4)
    assert world.state.ledger.has_turns
    holds = next(t for t in world.state.active.values() if t.nodes)
    steady = replace(world.state, active={holds.id: replace(holds, steady_until=100.0)})
    plans, waiting = PlansDue(), world.state
    assert plans.after(NodesChanged(time=0.0), waiting) == PlanDue(time=TURN_S)
    assert plans.after(NodesChanged(time=1.0), steady) == PlanDue(time=100.0)
    assert plans.after(PlanDue(time=100.0), waiting) == PlanDue(time=100.0 + TURN_S)
    assert plans.after(PlanDue(time=TURN_S), waiting) is None
    assert plans.after(PlanDue(time=100.0 + TURN_S), waiting) == PlanDue(time=100.0 + 2 * TURN_S)


def test_whoever_has_just_lost_its_nodes_takes_none_from_a_user_that_holds_its_one() -> None:
    """As one does whose pilots are refused: each change of hands costs the other a start."""
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="a")
    world.submit(1, user="vic", n_max=1)
    for id_ in (2, 3, 4):
        world.submit(id_, user="abe", n_max=1)
    world.nodes(joined="bcd")
    assert world.held(1) == "a" and held(world, 2, 3, 4) == 3
    world.nodes(left="bcd")
    assert world.held(1) == "a"


def test_nodes_that_a_users_trainers_cannot_use_are_not_left_idle() -> None:
    world = World(EngineSettings(max_parallel=None, user_shares={"others": 1.0}))
    world.nodes(joined="abcdefgh")
    world.submit(1, user="ann", n_min=3, n_max=3)
    world.submit(2, user="ann", n_min=3, n_max=3)
    world.submit(3, user="bob", n_max=8)
    assert (held(world, 1, 2), held(world, 3)) == (3, 5)


def test_places_are_dealt_by_weight() -> None:
    world = World(EngineSettings(max_parallel=8, user_shares={"bob": 3.0, "others": 1.0}))
    for id_ in range(1, 20):
        world.submit(id_, user="ann", n_max=1)
    for id_ in range(21, 40):
        world.submit(id_, user="bob", n_max=1)
    world.nodes(joined="abcdefgh")
    assert held(world, *range(1, 20)) == 2
    assert held(world, *range(21, 40)) == 6


@pytest.mark.parametrize("n", [2, 3, 4])
def test_nodes_that_fit_into_no_share_are_used_all_the_same(n: int) -> None:
    """Each has a share of 2 n - 1 nodes: one trainer fits, and n - 1 nodes are left of either share."""
    world = World(EngineSettings(user_shares={"others": 1.0}))
    world.nodes(joined="abcdefghijklmn"[: 4 * n - 2])
    for id_ in range(1, 9):
        world.submit(id_, user="ann" if id_ % 2 else "bob", n_min=n, n_max=n)
    assert held(world, *range(1, 9)) == 3 * n
    assert sorted(held(world, *range(first, 9, 2)) for first in (1, 2)) == [n, 2 * n]


@pytest.mark.parametrize("share_nodes", ["users", "no"])
@pytest.mark.parametrize("max_parallel", [10, None])
def test_users_share_single_gpus_by_their_weights(share_nodes: str, max_parallel: int | None) -> None:
    """A study's many fast trials leave a neighbour's one slow trainer its share, on nodes of its own where
    users may not meet."""
    settings = EngineSettings(
        share=Share.GPU,
        gpus_per_node=4,
        max_parallel=max_parallel,
        user_shares={"bob": 1.0, "others": 3.0},
        share_nodes=ShareNodes(share_nodes),
    )
    world = World(settings)
    gpus = frozenset(gpu for node in "abcd" for gpu in gpus_of(node, 4))
    world.take(NodesChanged(time=0.0, joined=gpus))
    for id_ in range(1, 30):
        world.submit(id_, user="ann", rate=50.0, n_max=2, gpus=True)
    world.submit(99, user="bob", rate=1.0, n_max=8, gpus=True)
    trials = [world.trainer(id_).nodes for id_ in range(1, 30)]
    assert len(world.trainer(99).nodes) == 4
    assert sum(map(len, trials)) == 12
    if share_nodes == "no":
        theirs = {node_of(gpu) for gpus in trials for gpu in gpus}
        assert not theirs & {node_of(gpu) for gpu in world.trainer(99).nodes}
    world.end(99)
    assert sum(len(world.trainer(id_).nodes) for id_ in range(1, 30)) == 16, "what bob leaves is ann's"


APART = EngineSettings(
    share=Share.GPU, gpus_per_node=2, share_nodes=ShareNodes.NO, user_shares={"others": 1.0}, max_parallel=10
)


def nodes_of(world: World, *trainers: int) -> frozenset[str]:
    return frozenset[str]().union(*(world.trainer(id_).nodes for id_ in trainers))


def gpus(world: World, *nodes: str, each: int = 2) -> None:
    world.take(NodesChanged(time=0.0, joined=frozenset(gpu for node in nodes for gpu in gpus_of(node, each))))


def test_a_user_that_can_be_beside_nobody_has_its_turn_of_the_nodes() -> None:
    """By count, 3 and 1 of 4 GPUs are shares that everybody can have."""
    world = World(APART)
    gpus(world, "a", "b")
    world.submit(1, user="ann", gpus=True, n_min=3, n_max=3)
    world.submit(2, user="bob", gpus=True, n_max=1)
    waits = Shortage.of(world.state)
    assert waits.why(world.trainer(2)) == (
        "needs 1 GPU, 0 free (1 more on nodes of other users, share_nodes): held by a trainer of another user"
    )
    assert waits.remedy(world.trainer(2)).startswith("another trainer ends or gives up 1 GPU")
    had = Counter[int]()
    for _ in range(40):
        world.now += TURN_S
        world.take(PlanDue(time=0.0))
        had.update(id_ for id_ in (1, 2) if nodes_of(world, id_))
        assert len(nodes_of(world, 1)) in (0, 3)
    assert 15 <= had[1] <= 25 and 15 <= had[2] <= 25
    assert due(world.state, world.now) is not None, "and there is a next turn"


def test_a_user_whose_trainers_are_on_all_nodes_gives_up_those_beyond_its_share() -> None:
    world = World(APART)
    gpus(world, "a", "b")
    for id_ in range(1, 5):
        world.submit(id_, user="ann", gpus=True, n_max=1, rate=1.0 + id_ % 2)
    assert len({*map(node_of, nodes_of(world, 1, 3))}) == 2, "those that are worth most are on both"
    world.submit(9, user="bob", gpus=True, n_max=2, rate=0.1)
    world.now += TURN_S
    world.take(PlanDue(time=0.0))
    assert len(nodes_of(world, 9)) == 2
    assert len(nodes_of(world, 1, 2, 3, 4)) == 2
    assert len({*map(node_of, nodes_of(world, 1, 2, 3, 4))}) == 1
