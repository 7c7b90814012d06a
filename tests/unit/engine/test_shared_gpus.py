"""Decisions where single GPUs are shared out: counts, the nodes that they are on, and how good that is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from bftrainer.allocate import ALLOCATORS
from bftrainer.allocate.place import NONE, by_node
from bftrainer.engine.decide import decide
from bftrainer.engine.gpus import polish
from bftrainer.engine.gpus.plan import Price, ground_of, holders_of, rules_of, trimmed, uncrowded
from bftrainer.engine.question import problem_of
from bftrainer.engine.queueing.waiting import why_queued
from bftrainer.engine.state import State
from bftrainer.model.actions import Regroup
from bftrainer.model.events import MachineChanged, NodesChanged, TrainerSubmitted, WorkersReady
from bftrainer.model.gpus import gpus_of, node_of, on_whole_nodes
from bftrainer.model.machine import Slot
from bftrainer.model.policy import EngineSettings, Share, ShareNodes
from bftrainer.model.problem import Plan, PlanStatus, Problem
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, RescaleCosts, Scalability, Trainer, TrainerSpec
from tests.support import placements
from tests.support.engine_world import World, make_spec
from tests.support.placements_milp import solved

GPUS = EngineSettings(share=Share.GPU, gpus_per_node=4, max_parallel=None, ageing_s=None)


def world_of(*nodes: str, settings: EngineSettings = GPUS, each: int = 4) -> World:
    world = World(settings)
    join(world, *nodes, each=each)
    return world


def join(world: World, *nodes: str, each: int = 4) -> None:
    joined = frozenset(gpu for node in nodes for gpu in gpus_of(node, each))
    world.take(NodesChanged(time=0.0, joined=joined))


def submit(world: World, trainer: int, **changes: Any) -> None:
    spec = make_spec(**{"gpus": True, "scalability": Scalability.GIVEN, **changes})
    world.take(TrainerSubmitted(time=0.0, trainer=trainer, spec=spec))


def on(world: World, trainer: int) -> dict[str, int]:
    return {node: len(gpus) for node, gpus in sorted(by_node(world.trainer(trainer).nodes).items())}


def train(world: World, trainer: int) -> None:
    """Its workers become members."""
    t = world.trainer(trainer)
    for generation in sorted(set(t.joining.values())):
        nodes = frozenset(node for node, own in t.joining.items() if own == generation)
        world.take(WorkersReady(time=0.0, trainer=trainer, generation=generation, nodes=nodes))


def test_two_trainers_share_a_node() -> None:
    world = world_of("n1")
    submit(world, 1, n_max=2)
    submit(world, 2, n_max=2)
    assert (on(world, 1), on(world, 2)) == ({"n1": 2}, {"n1": 2})
    train(world, 1)
    assert world.trainer(1).members == ("n1:0", "n1:1")


def test_a_node_that_leaves_takes_its_gpus_from_all_that_are_there() -> None:
    world = world_of("n1", "n2")
    submit(world, 1, n_max=2)
    submit(world, 2, n_max=6)
    for trainer in (1, 2):
        train(world, trainer)
    step = world.take(NodesChanged(time=0.0, left=frozenset(gpus_of("n2", 4))))
    assert on(world, 1) == {"n1": 2}
    assert on(world, 2) == {"n1": 2}
    assert [a.trainer for a in step.actions if isinstance(a, Regroup)] == [2], "the other trains on"


def test_a_single_gpu_that_is_taken_costs_its_trainer_alone() -> None:
    world = world_of("n1")
    for trainer in (1, 2):
        submit(world, trainer, n_max=2)
        train(world, trainer)
    world.take(NodesChanged(time=0.0, left=frozenset({"n1:3"})))
    assert (on(world, 1), on(world, 2)) == ({"n1": 2}, {"n1": 1})


def test_whole_nodes_and_parts_live_together() -> None:
    world = world_of("n1", "n2", "n3")
    submit(world, 1, n_max=2)
    whole = on_whole_nodes(make_spec(n_max=2, rate=9.0), 4)
    world.take(TrainerSubmitted(time=0.0, trainer=2, spec=whole))
    assert len(on(world, 1)) == 1
    assert sorted(on(world, 2).values()) == [4, 4]
    assert set(on(world, 1)).isdisjoint(on(world, 2))


def test_users_do_not_meet_on_a_node_unless_the_site_allows_it() -> None:
    for share_nodes, counts in ((ShareNodes.NO, [0, 2]), (ShareNodes.USERS, [2, 2])):
        world = world_of("n1", settings=replace(GPUS, share_nodes=share_nodes))
        submit(world, 1, n_max=2, user="anna")
        submit(world, 2, n_max=2, user="ben")
        assert sorted(len(world.trainer(t).nodes) for t in (1, 2)) == counts


def test_trainers_of_several_nodes_are_kept_apart_if_they_interfere() -> None:
    for avoid, shared in ((True, 0), (False, 1)):
        world = world_of("n1", "n2", "n3", settings=replace(GPUS, avoid_interference=avoid))
        submit(world, 1, n_min=6, n_max=6)
        submit(world, 2, n_min=5, n_max=6, rate=0.5)
        both = on(world, 1).keys() & on(world, 2).keys()
        assert len(both) == shared


def test_a_curve_with_branches_keeps_a_trainer_on_one_node() -> None:
    """On 2 nodes 4 GPUs are worth less than 3 on one: by hand, 4 * 60 < 3 * 100."""
    slow = ((1, 60.0), (8, 480.0))
    for across, expected in ((slow, {"n1": 3}), (None, {"n1": 3, "n2": 1})):
        world = World(GPUS)
        joined = frozenset({*gpus_of("n1", 3), *gpus_of("n2", 3)})
        world.take(NodesChanged(time=0.0, joined=joined))
        submit(world, 1, n_max=4, curve=((1, 100.0), (8, 800.0)), across=across)
        assert on(world, 1) == expected


def test_what_waits_is_told_in_gpus() -> None:
    world = world_of("n1")
    world.take(MachineChanged(time=0.0, nodes={"": 4}))
    told = why_queued(world.state, 1, make_spec(n_min=5, n_max=5), 0.0)
    assert told == "can never run: needs at least 5 GPUs; this machine has 4"


def test_classes_and_cabinets_are_those_of_the_node() -> None:
    own = replace(GPUS, node_classes={"fat": frozenset({"n1"})})
    assert own.class_of("n1:3") == "fat"
    world = world_of("n1", "n2", settings=own)
    submit(world, 1, n_max=8)
    assert len(on(world, 1)) == 1, "no trainer mixes classes"


def test_a_plan_says_what_its_placement_is_worth() -> None:
    """Of two GPUs on two nodes each is another user's: two free ones are of no use to a third."""
    world = world_of("n1", "n2", each=2)
    for trainer, user in ((1, "anna"), (2, "ben")):
        submit(world, trainer, n_max=1, user=user)
    step = world.take(
        TrainerSubmitted(time=0.0, trainer=3, spec=make_spec(gpus=True, n_max=2, rate=0.1, user="eva"))
    )
    assert step.plan is not None
    assert (len(world.trainer(3).nodes), step.plan.status) == (0, PlanStatus.OPTIMAL)
    assert step.plan.bound == step.plan.objective == 2 * 120.0


# --- how good placements are -----------------------------------------------------------------------


def instance(rng: random.Random, users: int) -> tuple[dict[str, int], list[Trainer]]:
    """A few nodes, some partly used by others, and trainers that hold GPUs as they may after a while."""
    count, each = rng.choice([2, 3]), rng.choice([2, 3, 4])
    nodes = {f"n{i}": each - (rng.random() < 0.2) * rng.randint(0, each - 1) for i in range(count)}
    free = [gpu for node, n in nodes.items() for gpu in gpus_of(node, n)]
    trainers = []
    for number in range(1, rng.choice([2, 3, 4]) + 1):
        spec = _spec(rng, count, each, f"u{rng.randrange(users)}")
        held: list[str] = []
        if rng.random() < 0.6 and not spec.whole:
            size = rng.randint(0, min(len(free), spec.n_max))
            held = sorted(free)[:size] if spec.fitting(size) == size else []
        free = [gpu for gpu in free if gpu not in held]
        own = Trainer(id=number, spec=spec, submitted_at=0.0)
        trainers.append(replace(own, nodes=frozenset(held), members=tuple(held)))
    return nodes, trainers


def _spec(rng: random.Random, count: int, each: int, user: str) -> TrainerSpec:
    one, serial = rng.uniform(50, 500), rng.uniform(0.01, 0.1)
    most = rng.randint(1, count * each)
    local = tuple((n, one * n / (1 + serial * (n - 1))) for n in (1, 2, 4, 8) if n <= most)
    slower = rng.uniform(0.6, 0.98)
    costs = RescaleCosts(up=Cost(stall_s=rng.uniform(0, 20)), down=Cost(stall_s=rng.uniform(0, 10)))
    spec = make_spec(
        n_min=rng.choice([1, 1, min(2, most)]), n_max=most, curve=local, costs=costs, user=user, gpus=True
    )
    spec = replace(spec, scalability=Scalability.GIVEN)
    if rng.random() < 0.2:
        return on_whole_nodes(replace(spec, n_min=1, n_max=count), each)
    return replace(
        spec, across=tuple((n, rate * slower) for n, rate in local) if rng.random() < 0.5 else None
    )


def solve(problem: Problem) -> Plan:
    return ALLOCATORS["auto"](problem, GPUS)


def posed(number: str, users: int) -> tuple[State, dict[str, int], list[Trainer]] | None:
    """An instance as a state; None if what trainers hold there breaks the rules already."""
    nodes, trainers = instance(random.Random(f"{users} {number}"), users)
    if not placements.kept(trainers, nodes, rules_of(GPUS)):
        return None
    pool = frozenset(gpu for node, n in nodes.items() for gpu in gpus_of(node, n))
    active = {t.id: t for t in trainers}
    state = State(settings=GPUS, pool=pool, active=active, since=dict.fromkeys(pool, 0.0))
    return state, nodes, trainers


@pytest.mark.parametrize("users", [1, 2])
def test_placements_on_small_machines_are_the_best_that_there_are(users: int) -> None:
    """Against all placements: none is better, and the plan says that it is proven."""
    cases = [case for number in range(60) if (case := posed(str(number), users))]
    assert len(cases) > 40
    for state, nodes, trainers in cases:
        question, _ = problem_of(state, tuple(trainers), 0.0)
        plan, after = decide(state, 0.0, solve)
        assert plan is not None
        assert all(on_one_side(t, after.active[t.id]) for t in trainers), "nobody migrates"
        target = [replace(t, nodes=after.active[t.id].nodes) for t in trainers]
        assert placements.kept(target, nodes, rules_of(GPUS))
        best = placements.best(question.candidates, trainers, nodes, question.t_fwd_s, rules_of(GPUS))
        assert plan.objective == pytest.approx(best, rel=1e-8)
        assert plan.status is PlanStatus.OPTIMAL
        assert plan.bound == pytest.approx(best, rel=2 * GPUS.milp_gap)


@pytest.mark.parametrize("users", [1, 2])
def test_nodes_taken_one_by_one_and_in_pairs_lead_near_the_best(
    users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on machines that are too large to be searched at once."""
    monkeypatch.setattr(polish, "WAYS", 0)
    monkeypatch.setattr(polish, "FEW", 0)
    gaps = []
    for case in filter(None, (posed(str(number), users) for number in range(60))):
        state, nodes, trainers = case
        question, _ = problem_of(state, tuple(trainers), 0.0)
        plan, after = decide(state, 0.0, solve)
        assert plan is not None
        assert all(on_one_side(t, after.active[t.id]) for t in trainers)
        best = placements.best(question.candidates, trainers, nodes, question.t_fwd_s, rules_of(GPUS))
        assert plan.objective <= best * (1 + 1e-9)
        assert best <= plan.bound * (1 + 1e-9) + 1e-9
        gaps.append((best - plan.objective) / best)
    assert sum(gap <= 0.02 for gap in gaps) / len(gaps) >= 0.95
    assert sum(gaps) / len(gaps) <= 0.005


def test_the_milp_with_nodes_agrees_with_all_placements() -> None:
    for number in (3, 8, 13):
        case = posed(str(number), 2)
        assert case is not None
        state, nodes, trainers = case
        question, groups = problem_of(state, tuple(trainers), 0.0)
        price = Price.of(question, groups)
        found = solved(holders_of(state, trainers, price), ground_of(state, question), time_s=60.0)
        best = placements.best(question.candidates, trainers, nodes, question.t_fwd_s, rules_of(GPUS))
        assert found.worth == pytest.approx(best, rel=1e-6)


def test_of_placements_that_are_worth_the_same_the_search_takes_that_of_fewest_nodes() -> None:
    """Of a trainer whose curve does not tell one node from several, too."""
    row = (0.0, 1.0, 2.0)
    holder = polish.GpuHolder(trainer=1, user="", held=NONE, training=NONE, whole=0, alone=row, across=row)
    pool = frozenset({*gpus_of("n1", 2), *gpus_of("n2", 1)})
    ground = polish.Ground(pool=pool, still=NONE, caps=(), rules=rules_of(GPUS))
    found = polish.polished(
        [holder], polish.PolishedPlacement(0.0, {1: NONE}), ground, enough=9.0, tries=1000
    )
    assert found.target == {1: frozenset(gpus_of("n1", 2))}


def test_trainers_of_which_nothing_is_known_are_kept_apart_if_they_interfere() -> None:
    world = world_of("n1", "n2", "n3")
    for trainer in (1, 2):
        submit(world, trainer, n_min=5, n_max=6, curve=None, scalability=Scalability.AUTO)
    submit(world, 3, n_max=2, curve=None, scalability=Scalability.AUTO)
    wide = [on(world, t) for t in (1, 2, 3) if len(on(world, t)) > 1]
    assert len(wide) == 1, "three nodes have no room for two trainers of two nodes that do not meet"
    assert len(on(world, 3)) == 1


def test_the_search_for_better_placements_keeps_the_caps_of_users() -> None:
    world = World(replace(GPUS, user_max_nodes=3))
    join(world, "n1", "n2", "n3", "n4", each=2)
    for trainer, user in enumerate(("anna", "anna", "ben"), 1):
        submit(world, trainer, n_max=4, user=user, curve=((1, 9.0), (4, 30.0)), across=((1, 5.0), (4, 20.0)))
    got = {t: on(world, t) for t in (1, 2, 3)}
    assert sum(sum(got[t].values()) for t in (1, 2)) == 3
    assert sum(got[3].values()) <= 3
    assert not (got[1] | got[2]).keys() & got[3].keys()


def test_who_keeps_another_from_growing_gives_way_though_counts_would_have_it_grow() -> None:
    """One trainer has three nodes more by the counts, which are worth its pause together only. With these it
    may not leave the node on which it is in the way."""
    flat, steep = ((1, 10.0), (5, 20.0), (8, 20.0), (17, 30.0)), ((1, 10.0), (7, 90.0))
    pause = RescaleCosts(up=Cost(stall_s=50.0))
    pool = frozenset(gpu for i in range(8) for gpu in gpus_of(f"n{i}", 4))
    held = {1: ("n0:0", *gpus_of("n1", 4)), 2: ("n0:1", "n0:2"), 3: ("n0:3",)}
    curves, costs = (flat, steep, ((1, 1.0),)), (pause, RescaleCosts(), RescaleCosts())
    active = {}
    for (id_, own), curve, cost in zip(held.items(), curves, costs, strict=True):
        spec = make_spec(n_max=curve[-1][0], curve=curve, gpus=True, costs=cost)
        spec = replace(spec, scalability=Scalability.GIVEN)
        active[id_] = Trainer(id=id_, spec=spec, submitted_at=0.0, nodes=frozenset(own), members=own)
    state = State(settings=GPUS, pool=pool, active=active, since=dict.fromkeys(pool, 0.0))
    _, after = decide(state, 0.0, solve)
    assert [len(after.active[id_].nodes) for id_ in (1, 2)] == [4, 7]


def on_one_side(before: Trainer, after: Trainer) -> bool:
    return after.nodes <= before.nodes or after.nodes >= before.nodes


def test_the_names_of_gpus_tell_their_nodes() -> None:
    assert gpus_of("n1", 2) == ("n1:0", "n1:1")
    assert [node_of(name) for name in ("n1:1", "n1")] == ["n1", "n1"]
    assert [Slot.of(name) for name in ("n1:12", "n1")] == [Slot("n1", 12), Slot("n1")]
    for none in ("n1:", "n1:x", "n1:01", "n1:1:2", "n1:12345"):
        assert str(Slot.of(none)) != none, "no name of a GPU"


def test_a_decision_looks_only_for_the_nodes_of_gpus_that_changed_hands() -> None:
    world = world_of(*(f"n{i}" for i in range(50)))
    for trainer in range(1, 11):
        submit(world, trainer, n_max=24, across=((24, 1000.0),))
    before = node_of.cache_info()
    submit(world, 11, n_max=4)
    after = node_of.cache_info()
    assert after.hits + after.misses - before.hits - before.misses < 200  # the pool has as many GPUs


def test_a_trainer_that_gets_a_size_it_may_not_have_keeps_what_it_held() -> None:
    """It would migrate: what is in training is not all that it holds."""
    world = world_of("a", "b")
    submit(world, 1, n_min=2, n_max=4, sizes=AllowedSizes(multiple_of=2))
    trainer = replace(world.trainer(1), nodes=frozenset({"a:1", "b:0"}), members=("a:1",))
    target = {1: frozenset({"a:1", "a:2", "b:0"})}
    assert trimmed([trainer], target, world.state) == {1: frozenset({"a:1", "b:0"})}
    assert trimmed([trainer], {1: frozenset({"a:1"})}, world.state) == {1: frozenset()}


@pytest.mark.parametrize("held", [{"a:1"}, set()], ids=["held", "gained, too"])
@pytest.mark.parametrize("share", [False, True])
def test_groups_that_have_gpus_of_one_node_keep_users_apart(share: bool, held: set[str]) -> None:
    """Of two that gain GPUs there the first has them."""
    world = world_of("a", "b")
    submit(world, 1, user="ann")
    submit(world, 2, user="bob")
    ann, bob = (replace(world.trainer(t), nodes=frozenset(own)) for t, own in ((1, held), (2, {"b:1"})))
    target = {1: frozenset({"a:1"}), 2: frozenset({"b:1", "a:2"})}
    rules = replace(rules_of(world.state.settings), users_share=share)
    kept = target if share else target | {2: frozenset({"b:1"})}
    assert uncrowded(target, [ann, bob], rules) == kept
