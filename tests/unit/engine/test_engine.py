"""The engine: scenarios of a trainer's life, and invariants that hold after any sequence of events."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.allocate import ALLOCATORS
from bftrainer.engine.question import problem as engine_problem
from bftrainer.engine.question import weight_of
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State, Step
from bftrainer.engine.step import step as engine_step
from bftrainer.model.actions import Action, Ended, Regroup, StartWorker, StopWorker
from bftrainer.model.events import (
    Drain,
    Event,
    Measured,
    NodesChanged,
    PolicyChanged,
    PollFailed,
    Resume,
    Resync,
    TrainerCancelled,
    TrainerEnded,
    TrainerSubmitted,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import (
    ASSUMED_COSTS,
    Cost,
    Points,
    RescaleCosts,
    Scalability,
    Trainer,
    TrainerSpec,
    TrainerStatus,
)
from bftrainer.performance import curve
from bftrainer.performance.estimate import costs_of, estimates_of


def solve(problem: Problem) -> Plan:
    return ALLOCATORS["knapsack"](problem, EngineSettings())


def make_spec(
    n_min: int = 1,
    n_max: int = 8,
    rate: float = 1.0,
    weight: float = 1.0,
    curve: Points | None = (),
    **others: Any,
) -> TrainerSpec:
    """A trainer that scales linearly, unless told otherwise, and rescales for nothing."""
    spec = TrainerSpec(
        name="t",
        command=("train",),
        n_min=n_min,
        n_max=n_max,
        curve=((n_max, n_max * rate),) if curve == () else curve,
        costs=RescaleCosts(),
        weight=weight,
    )
    return replace(spec, **others)


@dataclass
class World:
    """An engine's state and a clock; every method takes one event in and returns its step."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    now: float = 0.0
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.state = State(settings=self.settings)

    def take(self, event: Event) -> Step:
        step = engine_step(self.state, replace(event, time=self.now), solve)
        self.state, self.now = step.state, self.now + 1.0
        return step

    def nodes(self, joined: str = "", left: str = "", vacated: str = "") -> Step:
        """`vacated` leave, too."""
        left, gone = left + vacated, frozenset(vacated)
        return self.take(NodesChanged(time=0.0, joined=frozenset(joined), left=frozenset(left), vacated=gone))

    def expect(self, facts: dict[str, float | None], joined: str = "") -> Step:
        """The scheduler says when nodes will leave (from now, in seconds; None: it no longer says so)."""
        known = {n: NodeInfo(until=None if s is None else self.now + s) for n, s in facts.items()}
        return self.take(NodesChanged(time=0.0, joined=frozenset(joined), facts=known))

    def submit(self, trainer: int, **changes: Any) -> Step:
        return self.take(TrainerSubmitted(time=0.0, trainer=trainer, spec=make_spec(**changes)))

    def end(self, trainer: int) -> Step:
        return self.take(TrainerCancelled(time=0.0, trainer=trainer))

    def held(self, trainer: int) -> str:
        return "".join(sorted(self.trainer(trainer).nodes))

    def ready(self, trainer: int, nodes: str, generation: int | None = None) -> Step:
        started = self.trainer(trainer).joining[nodes[0]] if generation is None else generation
        return self.take(WorkersReady(time=0.0, trainer=trainer, generation=started, nodes=frozenset(nodes)))

    def lost(self, trainer: int, node: str, **changes: object) -> Step:
        t = self.trainer(trainer)
        event = WorkerLost(time=0.0, trainer=trainer, node=node, generation=t.started.get(node, 0))
        return self.take(replace(event, **changes))  # type: ignore[arg-type]

    def trainer(self, trainer: int) -> Trainer:
        return self.state.trainers[trainer]

    def running(self, members: str, **changes: object) -> World:
        """Trainer 1 trains on `members`, in this rank order: a batch, if it is in the order of names."""
        self.submit(1, **changes)
        for batch in [members] if sorted(members) == list(members) else members:
            self.nodes(joined=batch)
            self.ready(1, batch)
        assert self.trainer(1).members == tuple(members)
        return self


def starts(step: Step) -> list[tuple[int, str]]:
    return [(a.trainer, a.node) for a in step.actions if isinstance(a, StartWorker)]


def regroup(step: Step) -> Regroup:
    """The only action of this step, which is a Regroup."""
    (action,) = step.actions
    assert isinstance(action, Regroup)
    return action


# --- publish when ready --------------------------------------------------------------------------


def test_a_new_trainer_starts_workers_and_waits_for_all_of_them() -> None:
    world = World()
    world.nodes(joined="ab")
    step = world.submit(1)
    assert step.actions == tuple(StartWorker(trainer=1, generation=1, node=n) for n in "ab")
    assert step.plan is not None
    assert step.plan.allocation == {1: {"a", "b"}}
    assert world.trainer(1).status is TrainerStatus.STARTING
    assert world.ready(1, "a").actions == ()
    assert regroup(world.ready(1, "b")) == Regroup(trainer=1, generation=2, members=("a", "b"))
    assert (world.trainer(1).generation, world.trainer(1).published) == (2, 2)
    assert world.trainer(1).status is TrainerStatus.RUNNING
    assert world.trainer(1).joining == {}


def test_members_train_on_until_all_newcomers_are_warm_and_keep_their_ranks() -> None:
    world = World().running("mn")
    step = world.nodes(joined="az")
    assert starts(step) == [(1, "a"), (1, "z")]
    assert len(step.actions) == 2
    assert world.trainer(1).members == ("m", "n")
    assert world.ready(1, "z").actions == ()
    assert world.trainer(1).members == ("m", "n")
    last = regroup(world.ready(1, "a"))
    assert last.members == ("m", "n", "a", "z")
    assert last.leaving == ()
    assert world.trainer(1).published == last.generation


def test_batches_are_published_one_by_one() -> None:
    world = World().running("m")
    world.nodes(joined="a")
    world.nodes(joined="b")
    assert regroup(world.ready(1, "b")).members == ("m", "b")
    assert regroup(world.ready(1, "a")).members == ("m", "b", "a")


def test_a_batch_that_loses_its_last_cold_node_is_complete() -> None:
    world = World().running("m")
    world.nodes(joined="ab")
    world.ready(1, "a")
    assert regroup(world.nodes(left="b")).members == ("m", "a")


def test_too_few_warm_workers_are_no_membership_yet() -> None:
    world = World()
    world.nodes(joined="ab")
    world.submit(1, n_min=2)
    assert world.lost(1, "b").actions == (StartWorker(trainer=1, generation=2, node="b"),)
    assert world.ready(1, "a").actions == ()  # its batch is whole, but one node cannot train
    assert regroup(world.ready(1, "b")).members == ("a", "b")


# --- nodes leave ---------------------------------------------------------------------------------


def test_survivors_of_a_forced_leave_regroup_at_once() -> None:
    world = World().running("mazn")
    generation = world.trainer(1).generation
    step = world.nodes(left="ax")
    assert regroup(step) == Regroup(trainer=1, generation=generation + 1, members=("m", "z", "n"))
    assert world.trainer(1).nodes == set("mzn")
    assert world.state.pool == set("mzn")


def test_workers_on_vacated_nodes_leave_at_a_step_boundary_and_newcomers_there_stop() -> None:
    world = World().running("abc")
    world.nodes(joined="d")
    step = world.nodes(left="a", vacated="bd")
    assert step.actions == (
        StopWorker(trainer=1, generation=4, node="d"),
        Regroup(trainer=1, generation=4, members=("c",), leaving=("b",)),
    )
    assert world.state.pool == {"c"} and world.trainer(1).nodes == {"c"}


def test_a_trainer_whose_last_nodes_are_vacated_writes_a_checkpoint() -> None:
    world = World().running("ab")
    step = world.nodes(vacated="ab")
    assert regroup(step) == Regroup(trainer=1, generation=3, members=(), leaving=("a", "b"))


def test_a_leave_is_not_delayed_by_a_join_at_the_same_moment() -> None:
    world = World().running("mn")
    step = world.nodes(left="m", joined="a")
    assert step.actions == (
        Regroup(trainer=1, generation=3, members=("n",)),
        StartWorker(trainer=1, generation=3, node="a"),
    )


def test_below_the_minimum_survivors_wait_for_newcomers_without_a_regroup() -> None:
    world = World().running("abc", n_min=3, n_max=3)
    step = world.nodes(left="a", joined="d")
    assert step.actions == (StartWorker(trainer=1, generation=3, node="d"),)
    assert world.trainer(1).members == ("b", "c")
    assert regroup(world.ready(1, "d")).members == ("b", "c", "d")


def test_below_the_minimum_without_replacement_survivors_checkpoint_and_leave() -> None:
    world = World().running("abc", n_min=3, n_max=3)
    assert regroup(world.nodes(left="a")) == Regroup(trainer=1, generation=3, members=(), leaving=("b", "c"))
    assert world.trainer(1).status is TrainerStatus.WAITING
    assert world.trainer(1).nodes == set()


def test_leaving_nodes_of_others_change_nothing() -> None:
    world = World().running("ab", n_max=2)
    world.nodes(joined="cd")
    step = world.nodes(left="d")
    assert step.actions == ()
    assert step.plan is not None  # it was decided anew, to the same
    assert world.nodes(left="x").plan is None


# --- trainers compete ----------------------------------------------------------------------------


def test_released_newcomers_are_stopped_before_the_node_is_taken() -> None:
    world = World()
    world.nodes(joined="ab")
    world.submit(1)
    step = world.submit(2, n_max=1, weight=100.0)
    assert step.actions == (
        StopWorker(trainer=1, generation=2, node="b"),
        StartWorker(trainer=2, generation=1, node="b"),
    )
    assert regroup(world.ready(1, "a")).members == ("a",)


def test_released_members_leave_at_a_step_boundary_before_the_node_is_taken() -> None:
    world = World().running("ab")
    step = world.submit(2, n_max=1, weight=100.0)
    assert step.actions == (
        Regroup(trainer=1, generation=3, members=("a",), leaving=("b",)),
        StartWorker(trainer=2, generation=1, node="b"),
    )


def test_only_the_first_max_parallel_trainers_hold_nodes() -> None:
    world = World(EngineSettings(max_parallel=2))
    world.nodes(joined="abcd")
    world.submit(1, n_max=1)
    world.submit(2, n_max=1)
    step = world.submit(3, n_max=1, weight=1000.0)
    assert (step.actions, step.plan) == ((), None)
    world.submit(4, n_max=1)
    assert list(world.state.active) == [1, 2]
    assert [t.id for t in world.state.waiting] == [3, 4]
    assert world.trainer(3).status is TrainerStatus.WAITING

    step = world.take(TrainerCancelled(time=0.0, trainer=4))  # a waiting one: nothing to decide
    assert step.plan is None
    assert step.ended == Ended(trainer=4, status=TrainerStatus.CANCELLED, reason="cancelled by its user")
    world.submit(5)

    step = world.take(TrainerCancelled(time=0.0, trainer=1))
    assert list(world.state.active) == [2, 3]
    assert [t.id for t in world.state.waiting] == [5]
    assert [trainer for trainer, _ in starts(step)] == [3]


def changed(world: World, **settings: Any) -> Step:
    """The site changes its policy; who makes engines hands it in with the state."""
    world.state = replace(world.state, settings=replace(world.state.settings, **settings))
    return world.take(PolicyChanged(time=0.0))


def test_a_new_policy_counts_at_once() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="abcd")
    for id_ in (1, 2, 3, 4):
        world.submit(id_, n_max=2, user="one")
    assert starts(changed(world, max_parallel=3)) == [(2, "c"), (2, "d")]
    assert list(world.state.active) == [1, 2, 3]
    changed(world, max_parallel=1)
    assert list(world.state.active) == [1, 2, 3], "who may hold nodes goes on"
    world.end(1)
    world.end(2)
    assert list(world.state.active) == [3], "but nobody moves up before there is room"
    world.end(3)
    assert list(world.state.active) == [4]
    assert len(world.held(4)) == 2
    step = changed(world, user_max_nodes=1)
    assert step.plan is not None
    assert len(world.held(4)) == 1


def test_a_trainer_is_submitted_once() -> None:
    world = World().running("ab")
    before = world.state
    assert world.submit(1).actions == ()
    assert world.state == before


# --- the end of a trainer ------------------------------------------------------------------------


def test_cancelling_dissolves_members_and_newcomers_and_serves_the_others() -> None:
    world = World().running("ab", weight=5.0)
    world.nodes(joined="c")
    assert world.submit(2, n_min=3).actions == ()
    step = world.take(TrainerCancelled(time=0.0, trainer=1))
    assert step.actions == (
        StopWorker(trainer=1, generation=4, node="c"),
        Regroup(trainer=1, generation=4, members=(), leaving=("a", "b")),
        *(StartWorker(trainer=2, generation=1, node=n) for n in "abc"),
    )
    assert step.ended is not None
    assert step.ended.status is TrainerStatus.CANCELLED
    assert list(world.state.trainers) == [2]


def test_members_report_the_end() -> None:
    world = World().running("ab")
    published = world.trainer(1).published
    event = TrainerEnded(time=0.0, trainer=1, generation=published, reason="all samples done")
    step = world.take(event)
    assert step.ended == Ended(trainer=1, status=TrainerStatus.COMPLETED, reason="all samples done")
    assert regroup(step).leaving == ("a", "b")
    assert world.state.trainers == {}
    assert world.take(event).ended is None


def test_unknown_trainers_are_nobodys_business() -> None:
    world = World().running("ab")
    before = world.state
    for event in (
        TrainerCancelled(time=0.0, trainer=9),
        TrainerEnded(time=0.0, trainer=9, generation=0),
        WorkerLost(time=0.0, trainer=9, node="a", generation=0),
        WorkersReady(time=0.0, trainer=9, generation=0, nodes=frozenset("a")),
        Measured(time=0.0, trainer=9, generation=0, point=(1, 1.0)),
        Resync(time=0.0, trainer=9, generation=0),
    ):
        assert world.take(event).actions == ()
        assert world.state == before


# --- fencing -------------------------------------------------------------------------------------


def test_reports_of_another_generation_are_refused() -> None:
    world = World().running("ab")
    world.nodes(joined="c")
    now = world.trainer(1)
    assert (now.published, now.joining) == (2, {"c": 3})
    before = world.state
    for event in (
        WorkersReady(time=0.0, trainer=1, generation=2, nodes=frozenset("c")),
        WorkersReady(time=0.0, trainer=1, generation=4, nodes=frozenset("c")),
        WorkersReady(time=0.0, trainer=1, generation=3, nodes=frozenset("ax")),
        TrainerEnded(time=0.0, trainer=1, generation=1),
        TrainerEnded(time=0.0, trainer=1, generation=3),
        Measured(time=0.0, trainer=1, generation=1, point=(2, 5.0)),
        WorkerLost(time=0.0, trainer=1, node="a", generation=4),
        WorkerLost(time=0.0, trainer=1, node="c", generation=2),
        WorkerLost(time=0.0, trainer=1, node="x", generation=2),
    ):
        step = world.take(event)
        assert (step.actions, step.plan, step.ended) == ((), None, None), event
        assert world.state == before, event


def test_a_loss_that_is_reported_twice_does_not_touch_the_replacement() -> None:
    world = World().running("ab")
    report = WorkerLost(time=0.0, trainer=1, node="b", generation=1)  # the generation that started it
    assert starts(world.take(report)) == [(1, "b")]
    assert regroup(world.ready(1, "b")).members == ("a", "b")
    assert world.take(report).actions == ()
    assert world.trainer(1).members == ("a", "b")


# --- workers die ---------------------------------------------------------------------------------


def test_a_lost_member_is_regrouped_away_and_started_again() -> None:
    world = World().running("ab")
    step = world.lost(1, "a")
    assert step.plan is None
    assert step.actions == (
        Regroup(trainer=1, generation=3, members=("b",)),
        StartWorker(trainer=1, generation=3, node="a", attempt=0),
    )
    assert world.trainer(1).nodes == {"a", "b"}
    assert regroup(world.ready(1, "a")).members == ("b", "a")  # the survivor is rank 0


def test_when_every_member_is_lost_all_start_again() -> None:
    world = World().running("a")
    assert world.lost(1, "a").actions == (StartWorker(trainer=1, generation=3, node="a"),)
    assert world.trainer(1).status is TrainerStatus.STARTING


def test_a_lost_newcomer_is_started_again() -> None:
    world = World().running("a")
    world.nodes(joined="b")
    assert world.lost(1, "b").actions == (StartWorker(trainer=1, generation=4, node="b"),)
    assert world.ready(1, "b", generation=3).actions == ()  # the dead one's report
    assert regroup(world.ready(1, "b")).members == ("a", "b")


def test_a_program_that_fails_again_and_again_without_progress_is_given_up() -> None:
    world = World(EngineSettings(max_failures=2)).running("a")
    for attempt in (1, 2):
        step = world.lost(1, "a", blame=True, samples=0.0, reason="exit code 3")
        assert [a.attempt for a in step.actions if isinstance(a, StartWorker)] == [attempt]
        assert step.ended is None
    step = world.lost(1, "a", blame=True, samples=0.0, reason="exit code 3")
    assert step.ended == Ended(trainer=1, status=TrainerStatus.FAILED, reason="exit code 3")
    assert world.state.trainers == {}


def test_failures_after_progress_count_anew() -> None:
    world = World(EngineSettings(max_failures=1)).running("a")
    for samples in (10.0, 20.0, 30.0, 40.0):
        assert world.lost(1, "a", blame=True, samples=samples).ended is None
        assert world.trainer(1).failures == 1
    assert world.lost(1, "a", blame=True, samples=40.0).ended is not None


def test_being_killed_is_never_held_against_a_program() -> None:
    world = World(EngineSettings(max_failures=0)).running("a")
    for _ in range(20):
        step = world.lost(1, "a")
        assert step.ended is None
        assert step.actions == (StartWorker(trainer=1, generation=world.trainer(1).generation, node="a"),)
    assert world.trainer(1).failures == 0


def test_failures_of_a_program_free_its_nodes_for_others() -> None:
    world = World(EngineSettings(max_failures=0)).running("ab", weight=5.0)
    world.submit(2)
    step = world.lost(1, "a", blame=True)
    assert step.ended is not None
    assert starts(step) == [(2, "a"), (2, "b")]


# --- what is measured ----------------------------------------------------------------------------


def measured(world: World, rate: float, trainer: int = 1, on: int | None = None) -> Step:
    """A window of a trainer on as many nodes as it has."""
    t = world.trainer(trainer)
    point = (on or len(t.members), rate)
    return world.take(Measured(time=0.0, trainer=trainer, generation=t.published, point=point))


def curve_of(trainer: Trainer) -> Points:
    return estimates_of((trainer,), {})[0][None].points


def test_no_more_than_twice_the_largest_size_seen_is_asked_for() -> None:
    world = World()
    world.nodes(joined="abcdefgh")
    world.submit(1, curve=None, n_max=8)
    for size in (2, 4, 8):
        assert len(world.trainer(1).nodes) == size  # n_min counts as seen
        joining = world.trainer(1).joining
        world.ready(1, "".join(sorted(joining)))
        measured(world, 10.0 * size)


def test_a_trainer_keeps_what_it_has_though_it_was_never_measured() -> None:
    """Journal of an earlier time: it has more nodes than it may ask for."""
    spec = make_spec(curve=None, n_max=8)
    old = Trainer(id=1, spec=spec, submitted_at=0.0, nodes=frozenset("abcdef"), members=tuple("abcdef"))
    state = restore(EngineSettings(), frozenset("abcdefgh"), [old])
    question, _ = engine_problem(state, (state.active[1],), 0.0)
    assert question.candidates[0].n_max == 6


def test_what_would_change_little_is_not_decided_upon() -> None:
    world = World().running("ab", curve=None, n_max=2)
    assert measured(world, 10.0).plan is not None
    assert measured(world, 10.4).plan is None
    for rate in (10.5, 10.6):
        assert measured(world, rate).plan is None
    for _ in range(4):
        step = measured(world, 12.0)
    assert world.trainer(1).observed.speeds[0][2].count == 8
    assert step.plan is not None  # small changes that have added up since the last plan


def test_a_speed_that_was_overrated_is_decided_upon() -> None:
    world = World().running("ab", curve=None)
    world.submit(2, n_max=4, curve=((1, 3.0), (4, 4.0)))
    held = len(world.trainer(1).nodes)
    measured(world, 0.1)
    assert len(world.trainer(1).nodes) < held


def test_a_given_curve_is_where_learning_begins() -> None:
    world = World().running("ab")
    assert curve_of(world.trainer(1)) == make_spec().curve
    step = measured(world, 1.0)  # half of what was given
    assert step.plan is not None
    assert curve.rate(curve_of(world.trainer(1)), 2) == pytest.approx(1.0)
    assert curve.rate(curve_of(world.trainer(1)), 8) == pytest.approx(4.0, rel=0.05)


def test_with_scalability_given_nothing_is_learnt() -> None:
    world = World().running("ab", scalability=Scalability.GIVEN)
    step = measured(world, 0.001)
    assert (step.plan, step.actions) == (None, ())
    assert curve_of(world.trainer(1)) == make_spec().curve
    up = Cost(stall_s=9.0)
    world.take(Measured(time=0.0, trainer=1, generation=world.trainer(1).published, up=up))
    assert costs_of((world.trainer(1),), {}) == (RescaleCosts(),)


def test_a_speed_counts_for_the_class_of_nodes_that_it_was_measured_on() -> None:
    classes = {"fat": frozenset("xy"), "thin": frozenset("ab")}
    for nodes, seen_on in (("xy", "fat"), ("ab", None)):
        world = World(EngineSettings(node_classes=classes))
        world = world.running(nodes, curves=(("fat", ((1, 9.0), (2, 18.0))),))
        measured(world, 3.0)
        assert [(name, n) for name, n, _ in world.trainer(1).observed.speeds] == [(seen_on, 2)]
        estimates = estimates_of((world.trainer(1),), {})[0]
        assert curve.rate(estimates[seen_on].points, 2) == pytest.approx(3.0)
        other = {"fat": None, None: "fat"}[seen_on]
        assert curve.rate(estimates[other].points, 2) == pytest.approx({"fat": 18.0, None: 2.0}[other])


def test_costs_are_measured_or_given_or_like_the_others_or_assumed() -> None:
    trainer = Trainer(id=1, spec=replace(make_spec(), costs=None), submitted_at=0.0)
    new = replace(trainer, id=2)
    assert costs_of((trainer,), {}) == (ASSUMED_COSTS,)
    state = State(settings=EngineSettings(), active={1: trainer})
    for stall, estimated in ((2.0, 2.0), (4.0, 3.0), (90.0, 4.0)):
        up = Cost(stall_s=stall, init_s=2 * stall)
        state = engine_step(state, Measured(time=0.0, trainer=1, generation=0, up=up), solve).state
        costs = RescaleCosts(up=Cost(stall_s=estimated, init_s=2 * estimated), down=ASSUMED_COSTS.down)
        assert costs_of((state.active[1], new), {}) == (costs, costs)
    given = replace(state.active[1], spec=make_spec())  # which says 0
    assert costs_of((given,), {})[0].up == Cost(stall_s=3.0, init_s=6.0)


def test_a_new_trainer_is_profiled_size_by_size_and_stays_until_it_is_measured() -> None:
    world = World(EngineSettings(profile_sizes=3))
    world.nodes(joined="abcdefgh")
    world.submit(1, curve=None, n_max=8)
    world.submit(2, n_max=8)
    for size in (1, 2, 4):
        assert len(world.trainer(1).nodes) == size
        world.ready(1, "".join(sorted(world.trainer(1).joining)))
        world.nodes(left="h" if size % 2 else "", joined="" if size % 2 else "h")  # whatever else happens
        assert len(world.trainer(1).nodes) == size
        assert measured(world, 3.0 * size).plan is not None
    assert len(world.trainer(1).nodes) > 4


def test_the_unknown_are_taken_to_be_as_fast_as_the_others() -> None:
    rates = (1.0, 7.0, 100.0)
    known = [Trainer(id=i, spec=make_spec(rate=r), submitted_at=0.0) for i, r in enumerate(rates)]
    unknown = Trainer(id=9, spec=make_spec(curve=None, n_max=4), submitted_at=0.0)
    assert estimates_of((*known, unknown), {})[-1][None].points == ((2, 14.0),)
    assert curve_of(unknown) == ((2, 2.0),)


# --- drain, resync, restart ----------------------------------------------------------------------


def test_drain_takes_every_node_with_a_checkpoint_and_gives_none() -> None:
    world = World().running("ab")
    world.nodes(joined="c")
    step = world.take(Drain(time=0.0))
    assert step.actions == (
        StopWorker(trainer=1, generation=4, node="c"),
        Regroup(trainer=1, generation=4, members=(), leaving=("a", "b")),
    )
    assert world.trainer(1).status is TrainerStatus.WAITING
    for later in (world.nodes(joined="d"), world.submit(2), world.nodes(left="a")):
        assert later.actions == ()
    assert world.state.draining
    assert world.state.pool == set("bcd")


def test_after_resume_nodes_are_given_again() -> None:
    world = World().running("ab")
    assert world.take(Resume(time=0.0)).plan is None  # nothing was drained
    world.take(Drain(time=0.0))
    step = world.take(Resume(time=0.0))
    assert starts(step) == [(1, "a"), (1, "b")]
    assert not world.state.draining


def test_resync_publishes_the_same_members_anew() -> None:
    world = World().running("mab")
    old = world.trainer(1)
    step = world.take(Resync(time=0.0, trainer=1, generation=old.published))
    assert regroup(step) == Regroup(trainer=1, generation=old.generation + 1, members=("m", "a", "b"))
    assert step.plan is None
    assert world.trainer(1).published == old.generation + 1
    assert world.take(Resync(time=0.0, trainer=1, generation=old.published)).actions == ()  # done already
    world = World()
    world.nodes(joined="a")
    world.submit(1)
    assert world.take(Resync(time=0.0, trainer=1, generation=0)).actions == ()  # nobody to agree


def test_a_failed_poll_changes_nothing() -> None:
    world = World().running("ab")
    before = world.state
    step = world.take(PollFailed(time=0.0, reason="timeout"))
    assert (step.actions, step.plan, world.state) == ((), None, before)


def test_restore_takes_lost_nodes_out_and_gives_none_to_those_who_wait() -> None:
    settings_ = EngineSettings(max_parallel=1)
    base = Trainer(
        id=1,
        spec=make_spec(),
        submitted_at=0.0,
        generation=5,
        published=4,
        nodes=frozenset("abcd"),
        members=("b", "a"),
        started={"a": 1, "b": 2, "c": 5, "d": 5},
        warm=frozenset("cd"),
    )
    state = restore(settings_, frozenset("acx"), [base, replace(base, id=2, nodes=frozenset("x"))])
    kept = replace(base, nodes=frozenset("ac"), members=("a",), started={"a": 1, "c": 5}, warm=frozenset("c"))
    assert state.active == {1: kept}
    assert [t.nodes for t in state.waiting] == [set()]
    assert state.pool == set("acx")


def test_strangers_are_refused() -> None:
    with pytest.raises(TypeError, match="not an event"):
        engine_step(World().state, "node gone", solve)  # type: ignore[arg-type]


# --- who is looked at ----------------------------------------------------------------------------

EVERYBODY = EngineSettings(max_parallel=None, ageing_s=None)


def test_without_a_limit_whoever_waits_can_be_given_nodes_at_once() -> None:
    world = World(EVERYBODY)
    world.nodes(joined="ab")
    for id_ in range(1, 31):
        world.submit(id_, n_max=1)
    assert list(world.state.active) == [1, 2]
    assert len(world.state.waiting) == 28

    step = world.submit(99, n_max=2, weight=10.0)
    assert starts(step) == [(99, "a"), (99, "b")]
    assert list(world.state.active) == [1, 2, 99]  # who has been given nodes once stays active
    assert step.plan is not None
    assert dict(step.plan.counts) == {1: 0, 2: 0, 99: 2}
    assert step.plan.allocation == {1: set(), 2: set(), 99: {"a", "b"}}
    assert starts(world.end(99)) == [(1, "a"), (2, "b")]
    assert starts(world.end(1)) == [(3, "a")]
    assert starts(world.nodes(joined="c")) == [(4, "c")]
    assert world.end(20).plan is None  # one that waits: nothing to decide


def test_without_a_limit_a_plan_speaks_of_nobody_who_gets_nothing_and_never_had_anything() -> None:
    world = World(EVERYBODY)
    step = world.submit(1)
    assert step.plan is None  # there is no node, so nobody is asked
    world.nodes(joined="a")
    world.submit(2, n_min=2)
    step = world.submit(3)
    assert step.plan is not None
    assert dict(step.plan.counts) == {1: 1}
    world.submit(4)
    assert list(world.end(1).state.active) == [3]  # trainer 2 comes first, but cannot run on one node
    assert [t.id for t in world.state.waiting] == [2, 4]


def rounds_until_served(settings_: EngineSettings, rounds: int) -> int | None:
    """A trainer waits for the only node; every 100 s one comes that is ten times as fast, and one is done."""
    world = World(settings_)
    world.nodes(joined="a")
    world.submit(100, n_max=1, rate=10.0)
    world.submit(1, n_max=1)
    for k in range(1, rounds + 1):
        world.now = 100.0 * k
        world.submit(100 + k, n_max=1, rate=10.0)
        (holder,) = (t.id for t in world.state.trainers.values() if t.nodes)
        if holder == 1:
            return k
        world.end(holder)
    return None


def test_nobody_starves_who_ages() -> None:
    """Its weight is 10 after 9 ageing times, and whoever has just come weighs a little more than 1."""
    settings_ = replace(EVERYBODY, ageing_s=100.0)
    served = rounds_until_served(settings_, 40)
    assert served is not None
    assert 9 <= served <= 25
    assert rounds_until_served(EVERYBODY, 40) is None


def test_waiting_makes_heavier_only_where_nobody_keeps_the_order_of_arrival() -> None:
    trainer = Trainer(id=1, spec=make_spec(weight=3.0), submitted_at=50.0)
    ageing = EngineSettings(max_parallel=None, ageing_s=100.0)
    assert [weight_of(trainer, ageing, now) for now in (50.0, 150.0, 250.0)] == [3.0, 6.0, 9.0]
    assert weight_of(trainer, ageing, 0.0) == 3.0  # the clock was set back
    assert weight_of(trainer, replace(ageing, ageing_s=None), 250.0) == 3.0
    assert weight_of(trainer, replace(ageing, max_parallel=4), 250.0) == 3.0


def test_who_waits_for_a_place_is_served_by_priority_and_then_by_arrival() -> None:
    world = World(EngineSettings(max_parallel=1))
    world.nodes(joined="ab")
    for id_, priority in ((1, 1.0), (2, 1.0), (3, 5.0), (4, 5.0), (5, 7.0)):
        world.submit(id_, priority=priority)
    assert [t.id for t in world.state.waiting] == [5, 3, 4, 2]
    stored = list(world.state.trainers.values())
    again = restore(world.settings, world.state.pool, sorted(stored, key=lambda t: t.id))
    assert list(again.active) == [1]
    assert [t.id for t in again.waiting] == [5, 3, 4, 2]
    for gone, next_ in ((1, 5), (5, 3), (3, 4), (4, 2)):
        assert starts(world.end(gone)) == [(next_, "a"), (next_, "b")]


def test_the_objective_that_is_named_decides() -> None:
    """A fast one, and one that is slow but matters more."""
    for text, winner in (
        ("throughput", 1),
        ("efficiency", 1),  # alike: the first
        ("priority", 2),
        ("0.01*throughput + priority", 2),
        ("0.9*throughput + 0.1*priority", 1),
    ):
        world = World(EngineSettings(objective=text))
        world.submit(1, rate=100.0)
        world.submit(2, priority=3.0)
        world.nodes(joined="ab")
        assert world.held(winner) == "ab", text


# --- caps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_parallel", [10, None])
def test_one_users_trainers_hold_no_more_nodes_together_than_the_cap(max_parallel: int | None) -> None:
    world = World(EngineSettings(max_parallel=max_parallel, user_max_nodes=3))
    world.nodes(joined="abcdefgh")
    world.submit(1, user="ann", rate=5.0, n_max=2)
    world.submit(2, user="ann", rate=5.0)
    world.submit(3, user="ann", n_min=4, rate=50.0)  # needs more than its user may have
    assert len(world.held(1) + world.held(2)) == 3
    world.submit(4, user="bob", n_max=2)
    world.submit(5, user="cid")
    assert [len(world.held(i)) for i in (3, 4, 5)] == [0, 2, 3]
    world.end(1)
    assert len(world.held(2)) == 3


# --- nodes that differ ---------------------------------------------------------------------------

CLASSES = EngineSettings(node_classes={"fat": frozenset("ab"), "thin": frozenset("cd")})
FASTER = (("fat", ((4, 400.0),)),)


def test_nobody_mixes_classes_and_nodes_of_no_class_are_one_more() -> None:
    world = World(CLASSES)
    world.nodes(joined="acexyz")
    world.submit(1)
    assert world.held(1) == "exyz"
    world.submit(2)
    assert world.held(2) in ("a", "c")
    world.nodes(joined="bd")
    assert world.held(1) == "exyz"
    assert world.held(2) in ("ab", "cd")


@pytest.mark.parametrize("objective_", ["throughput", "efficiency", "priority", "throughput+efficiency"])
def test_a_curve_of_its_own_makes_a_class_the_better_one(objective_: str) -> None:
    world = World(replace(CLASSES, objective=objective_))
    world.nodes(joined="abcdwxyz")
    world.submit(1, n_max=4, curves=FASTER)
    assert world.held(1) == "ab"  # 200/s there, and 4/s on the four of no class
    world.submit(2, n_max=4)
    assert world.held(2) == "wxyz"


def test_an_empty_curve_keeps_a_trainer_off_a_class() -> None:
    world = World(CLASSES)
    world.nodes(joined="abc")
    world.submit(1, curves=(("fat", ()),))
    assert world.held(1) == "c"
    world.submit(2, curves=(("fat", ()), ("thin", ())))
    assert world.held(2) == ""


def test_who_holds_nodes_does_not_change_to_a_better_class() -> None:
    world = World(CLASSES)
    world.nodes(joined="cd")
    world.submit(1, curves=FASTER)
    assert world.nodes(joined="ab").actions == ()
    assert world.held(1) == "cd"
    world.nodes(left="cd")  # now it holds nothing
    assert world.held(1) == "ab"


def test_a_node_stays_of_its_class_and_group_whatever_else_becomes_known_of_it() -> None:
    world = World(replace(CLASSES, departure_groups="joined"))
    world.nodes(joined="ac")
    world.submit(1, n_max=4)
    held = world.held(1)
    before = world.state.node_info
    assert before == {
        "a": NodeInfo(node_class="fat", group="joined 0.0"),
        "c": NodeInfo(node_class="thin", group="joined 0.0"),
    }
    world.expect({"a": 5_000.0, "c": 6_000.0})
    assert world.state.node_info["a"] == NodeInfo(node_class="fat", group="joined 0.0", until=5_002.0)
    assert world.held(1) == held
    world.expect({"a": None, "c": None})
    assert world.state.node_info == before
    world.expect({"b": 5_000.0}, joined="b")
    assert world.state.node_info["b"] == NodeInfo(node_class="fat", group="joined 4.0", until=5_004.0)
    world.take(NodesChanged(time=0.0, left=frozenset("b"), joined=frozenset("b")))
    assert world.state.node_info["b"] == NodeInfo(node_class="fat", group="joined 5.0")
    world.nodes(left="abc")
    assert world.state.node_info == {}
    world.expect({"x": 9.0})  # not ours
    assert world.state.node_info == {}


def test_where_nothing_tells_nodes_apart_nothing_is_kept_of_them() -> None:
    world = World()
    world.nodes(joined="abc")
    assert world.state.node_info == {}
    world.submit(1)
    question, parts = engine_problem(world.state, (world.trainer(1),), 5.0)
    assert (question.groups, parts) == ((), ())


# --- nodes that are expected to leave ------------------------------------------------------------

DEPARTING = RescaleCosts(up=Cost(stall_s=0.5, init_s=5.0), down=Cost(stall_s=5.0))


@pytest.mark.parametrize(
    ("groups", "taken"), [("none", {"m1", "n1"}), ("joined", {"m1", "n2"}), ("cabinet", {"n1", "n2"})]
)
def test_with_equal_values_a_trainer_takes_nodes_that_leave_together(groups: str, taken: set[str]) -> None:
    """Neighbours in name order, those that came together, or those of one cabinet."""
    world = World(EngineSettings(departure_groups=groups))
    for batch in ({"m1", "n2"}, {"n1"}):
        world.take(NodesChanged(time=0.0, joined=frozenset(batch)))
    step = world.submit(1, n_max=2, costs=DEPARTING)
    assert world.trainer(1).nodes == taken
    assert step.plan is not None
    assert step.plan.proven


def test_a_group_is_expected_to_leave_as_often_as_nodes_of_its_age_have_left() -> None:
    world = World(EngineSettings(departure_groups="joined", t_fwd_s=60.0))
    for _ in range(500):  # nodes stay for a second
        world.nodes(joined="x")
        world.nodes(left="x")
    world.nodes(joined="ab")
    (group,) = engine_problem(world.state, (), world.now)[0].groups
    assert group.size == 2
    assert group.departures > 0.9
    (group,) = engine_problem(world.state, (), world.now + 10_000.0)[0].groups
    assert group.departures < 0.1


def test_a_node_that_leaves_in_a_moment_is_not_worth_a_rescale() -> None:
    costs = RescaleCosts(up=Cost(stall_s=0.5, init_s=1.0), down=Cost(stall_s=0.5))
    world = World().running("a", costs=costs)
    assert world.expect({"b": 5.0}, joined="b").actions == ()
    assert world.expect({"c": -5.0}, joined="c").actions == ()  # it should have left already
    assert starts(world.expect({"d": 100.0}, joined="d")) == [(1, "d")]
    assert starts(world.expect({"b": 500.0})) == [(1, "b")]  # said later
    assert starts(world.expect({"c": None})) == [(1, "c")]


def test_nodes_that_should_have_left_are_kept_while_they_are_there() -> None:
    world = World().running("abc", costs=DEPARTING)
    assert world.expect({"a": 3.0, "b": -3.0}).actions == ()
    assert world.held(1) == "abc"


def test_of_nodes_that_leave_soon_and_late_the_late_ones_are_taken() -> None:
    world = World()
    world.expect({"a": 40.0, "b": 80.0, "c": None, "d": 1_000.0}, joined="abcd")
    world.submit(1, n_max=2)
    assert world.held(1) == "cd"
    world.submit(2, n_max=1)
    assert world.held(2) == "b"


# --- T_fwd from what has been seen ---------------------------------------------------------------


def test_without_a_given_time_decisions_look_as_far_as_nodes_have_stayed() -> None:
    """A long pause is worth it where nodes stay for hours, not where they are soon gone."""
    slow = RescaleCosts(up=Cost(stall_s=100.0))
    rng = random.Random("stays")
    for stay_s, worth in ((60.0, False), (20_000.0, True)):
        world = World(EngineSettings(t_fwd_s=None))
        for _ in range(500):
            world.nodes(joined="x")
            world.now += rng.expovariate(1.0 / stay_s) - 1.0
            world.nodes(left="x")
        world.running("a", costs=slow)
        assert (world.nodes(joined="b").actions != ()) is worth
        found = engine_problem(world.state, (), world.now)[0].t_fwd_s
        assert found == pytest.approx(min(stay_s, 3600.0), rel=0.35)


def test_every_departure_is_observed_with_its_age() -> None:
    world = World()
    world.nodes(joined="ab")  # at 0
    world.now = 30.0
    world.nodes(joined="c")
    world.now = 50.0
    world.nodes(left="bc", joined="c")  # after 50 s and 20 s; c is there anew
    world.now = 65.0
    world.nodes(left="cx")  # after 15 s
    known = world.state.survival
    assert sum(known.left) == pytest.approx(3.0, rel=1e-2)
    assert sum(known.seen_s) == pytest.approx(50.0 + 20.0 + 15.0, rel=1e-2)
    assert world.state.since == {"a": 0.0}


# --- restart -------------------------------------------------------------------------------------


def stored(id_: int, nodes: str, **changes: Any) -> Trainer:
    return Trainer(
        id=id_,
        spec=make_spec(**changes),
        submitted_at=float(id_),
        generation=3,
        published=3,
        nodes=frozenset(nodes),
        members=tuple(nodes),
        started=dict.fromkeys(nodes, 1),
    )


def test_restore_without_a_limit_keeps_those_active_who_hold_nodes() -> None:
    trainers = [stored(1, ""), stored(2, "ab", weight=2.0), stored(3, "x"), stored(4, "", priority=2.0)]
    state = restore(EVERYBODY, frozenset("abc"), trainers, now=70.0)
    assert list(state.active) == [2]
    assert [t.id for t in state.waiting] == [4, 1, 3]
    assert state.waiting.first() == trainers[3]
    assert state.since == dict.fromkeys("abc", 70.0)
    step = engine_step(state, NodesChanged(time=71.0, joined=frozenset("d")), solve)
    assert step.state.active[2].nodes == set("abcd")


def test_restore_gives_free_places_by_priority() -> None:
    trainers = [stored(1, ""), stored(2, "a"), stored(3, "", priority=2.0)]
    state = restore(EngineSettings(max_parallel=2), frozenset("a"), trainers)
    assert list(state.active) == [2, 3]
    assert [t.id for t in state.waiting] == [1]


def test_restore_under_new_classes_leaves_each_trainer_nodes_of_one() -> None:
    settings_ = replace(CLASSES, departure_groups="joined")
    state = restore(settings_, frozenset("abcdx"), [stored(1, "cdbe"), stored(2, "ax")], now=7.0)
    assert state.active[1].nodes == set("cd")
    assert state.active[1].members == ("c", "d")
    assert state.active[2].nodes == set("a")
    assert state.node_info["b"] == NodeInfo(node_class="fat", group="joined 7.0")
    step = engine_step(state, NodesChanged(time=8.0, joined=frozenset("y")), solve)
    assert {i: t.nodes for i, t in step.state.active.items()} == {1: set("cd"), 2: set("ab")}


# --- any sequence of events ----------------------------------------------------------------------

NODES = "abcdefgh"
TRAINERS = st.integers(1, 5)
SUBSETS = st.frozensets(st.sampled_from(NODES), max_size=5)


@dataclass(frozen=True)
class Op:
    """One random event, relative to the state that it meets."""

    kind: str
    trainer: int
    nodes: frozenset[str]
    others: frozenset[str]
    number: int

    def event(self, now: float, state: State) -> Event:  # noqa: PLR0911, PLR0912  one a kind
        trainer = state.trainers.get(self.trainer)
        generation = trainer.published if trainer else 0
        if self.number == 0:
            generation -= 1  # stale
        node = min(self.nodes, default="a")
        match self.kind:
            case "nodes":
                return NodesChanged(time=now, joined=self.nodes - self.others, left=self.others)
            case "submit":
                spec = make_spec(
                    n_min=1 + self.number % 3,
                    n_max=1 + self.number % 3 + len(self.nodes),
                    rate=1.0 + len(self.others),
                    weight=1.0 + self.number,
                    curve=None if self.number == 4 else (),
                )
                if self.number > 2:
                    spec = replace(spec, costs=None)
                if "h" in self.nodes:
                    fat = ((spec.n_max, 3.0 * spec.n_max),) if "h" in self.others else ()
                    spec = replace(spec, curves=(("fat", fat),), priority=2.0)
                spec = replace(spec, user="ann" if self.trainer % 2 else "bob")
                return TrainerSubmitted(time=now, trainer=self.trainer, spec=spec)
            case "expected":
                until = None if self.number == 4 else now + 40.0 * self.number - 20.0
                known = dict.fromkeys(self.nodes, NodeInfo(until=until))
                return NodesChanged(time=now, joined=self.nodes & self.others, facts=known)
            case "ready":
                started = list(trainer.joining.values()) if trainer else []
                which = started[self.number % len(started)] if started else 1
                return WorkersReady(
                    time=now, trainer=self.trainer, generation=which, nodes=frozenset(NODES) - self.others
                )
            case "lost":
                generation = trainer.started.get(node, generation) if trainer else generation
                return WorkerLost(
                    time=now,
                    trainer=self.trainer,
                    node=node,
                    generation=generation,
                    blame=self.number > 3,
                    samples=float(len(self.others)),
                )
            case "ended":
                return TrainerEnded(time=now, trainer=self.trainer, generation=generation)
            case "measured":
                up = Cost(stall_s=float(self.number)) if self.others else None
                point = (1 + len(self.nodes), 1.0 + self.number)
                return Measured(time=now, trainer=self.trainer, generation=generation, point=point, up=up)
            case "cancel":
                return TrainerCancelled(time=now, trainer=self.trainer)
            case "resync":
                return Resync(time=now, trainer=self.trainer, generation=generation)
            case "poll failed":
                return PollFailed(time=now, reason="timeout")
        return Drain(time=now)


KINDS = ["nodes"] * 6 + ["submit"] * 4 + ["ready"] * 8 + ["lost"] * 3 + ["measured"] * 2
KINDS += ["ended", "cancel", "resync", "poll failed", "expected", "expected"]
OPS = st.builds(
    Op, kind=st.sampled_from(KINDS), trainer=TRAINERS, nodes=SUBSETS, others=SUBSETS, number=st.integers(0, 4)
)
RUNS = st.tuples(st.lists(OPS, min_size=20, max_size=60), st.integers(0, 150))  # and when to drain, if at all


class Machine:
    """A stand-in for launchers: the workers that exist if every action is performed."""

    def __init__(self) -> None:
        self.workers: set[tuple[int, str]] = set()

    def before(self, event: Event, state: State, after: State) -> None:
        """What happened to workers without an action: their node left, or they were lost."""
        if isinstance(event, NodesChanged):
            self.workers = {(t, n) for t, n in self.workers if n not in event.left}
        if isinstance(event, WorkerLost) and after.trainers.get(event.trainer) is not state.trainers.get(
            event.trainer
        ):
            self.workers.discard((event.trainer, event.node))

    def perform(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case StartWorker():
                    assert action.node not in {n for _, n in self.workers}, f"{action} on a taken node"
                    self.workers.add((action.trainer, action.node))
                case StopWorker():
                    self.workers.discard((action.trainer, action.node))
                case Regroup():
                    self.workers -= {(action.trainer, n) for n in action.leaving}
                    assert {(action.trainer, n) for n in action.members} <= self.workers


def check_state(state: State, ids: list[int]) -> None:
    held = [n for t in state.active.values() for n in t.nodes]
    assert len(held) == len(set(held)), "a node has two trainers"
    assert set(held) <= state.pool
    limit = state.settings.max_parallel
    assert limit is None or len(state.active) <= limit
    assert limit is None or len(state.active) == limit or not state.waiting
    assert state.active.keys() | {t.id for t in state.waiting} == state.trainers.keys() <= set(ids)
    queue = [(-t.spec.priority, ids.index(t.id)) for t in state.waiting]
    assert queue == sorted(queue), "not by priority and arrival"
    assert state.since.keys() == state.pool
    assert not state.node_info or state.node_info.keys() == state.pool
    check_constraints(state)
    for t in state.waiting:
        assert (t.nodes, t.members, t.joining) == (frozenset(), (), {})
    for t in state.active.values():
        members, joining = set(t.members), set(t.joining)
        assert len(members) == len(t.members)
        assert not members & joining
        assert members | joining == t.nodes, "every node is a member or on its way to be one"
        assert t.warm <= joining
        assert t.published <= t.generation
        assert all(g <= t.generation for g in t.joining.values())
        assert not t.nodes or t.spec.n_min <= len(t.nodes) <= t.spec.n_max
        if state.draining:
            assert not t.nodes


def check_constraints(state: State) -> None:
    """Nobody mixes classes or uses one that it cannot, no user is above the cap, of whatever is held."""
    of = {node: name for name, nodes in state.settings.node_classes.items() for node in nodes}
    for t in state.active.values():
        classes = {of.get(node, "") for node in t.nodes}
        assert len(classes) <= 1, f"trainer {t.id} mixes {classes}"
        assert not classes & {name for name, points in t.spec.curves if not points}
    cap = state.settings.user_max_nodes
    for user in ("ann", "bob"):
        total = sum(len(t.nodes) for t in state.active.values() if t.spec.user == user)
        assert cap is None or total <= cap, f"{user} holds {total} nodes"


def check_step(before: State, event: Event, step: Step) -> None:
    state, actions = step.state, step.actions
    ranks = {StopWorker: 0, Regroup: 1, StartWorker: 2}
    order = [ranks[type(a)] for a in actions]
    assert order == sorted(order), "nodes are vacated before they are taken"
    regrouped = [a.trainer for a in actions if isinstance(a, Regroup)]
    assert len(regrouped) == len(set(regrouped)), "two memberships of one trainer"
    for action in actions:
        old, new = before.trainers.get(action.trainer), state.active.get(action.trainer)
        assert old is None or action.generation == old.generation + 1
        if new is None:
            assert step.ended is not None
            assert step.ended.trainer == action.trainer
            assert not isinstance(action, StartWorker)
            continue
        assert action.generation == new.generation
        if isinstance(action, StartWorker):
            assert new.joining[action.node] == action.generation
        if isinstance(action, Regroup):
            assert action.members == new.members
            assert new.published == action.generation
            assert len(action.members) == 0 or len(action.members) >= new.spec.n_min
            assert set(action.leaving) <= set(old.members if old else ()) - set(action.members)
    left = event.left if isinstance(event, NodesChanged) else frozenset()
    if state.settings.max_parallel is not None:
        promoted = [t for t in before.waiting if t.id in state.active]
        assert promoted in ([], [before.waiting.first()])
    for id_, new in state.active.items():
        old = before.trainers.get(id_)
        if old is None:
            continue
        assert state.settings.max_parallel is not None or id_ in before.active or new.nodes
        kept = old.nodes - left
        assert new.nodes <= kept or new.nodes >= kept, "it migrates"
        assert new.generation >= old.generation
        assert new.published >= old.published
        survivors = tuple(n for n in old.members if n in new.members)
        assert new.members[: len(survivors)] == survivors, "survivors keep their order, before newcomers"
        just_now = event.nodes if isinstance(event, WorkersReady) else frozenset()
        assert set(new.members) - set(old.members) <= old.warm | just_now, "a cold worker is a member"
        assert id_ in regrouped or set(new.members) <= set(old.members), "a member that nobody was told of"
        gone = set(old.members) - set(new.members)
        if gone and len(new.members) >= new.spec.n_min:
            assert id_ in regrouped, "survivors were not told"


SITES = {
    "a few at a time": EngineSettings(max_parallel=3, max_failures=1),
    "everybody": EngineSettings(
        max_parallel=None,
        max_failures=1,
        ageing_s=10.0,
        t_fwd_s=None,
        user_max_nodes=3,
        nodes_per_trainer=2.0,
    ),
    "everybody, on classes that leave together": EngineSettings(
        max_parallel=None,
        max_failures=1,
        user_max_nodes=4,
        node_classes={"fat": frozenset("abc"), "thin": frozenset("def")},
        departure_groups="joined",
    ),
    "a few, on classes and cabinets": EngineSettings(
        max_parallel=2,
        max_failures=1,
        objective="0.5*efficiency+priority",
        t_fwd_s=None,
        user_max_nodes=3,
        node_classes={"fat": frozenset("adg")},
        departure_groups="cabinet",
    ),
}


@pytest.mark.parametrize("site", SITES.values(), ids=SITES.keys())
@settings(max_examples=100, deadline=None)
@given(run=RUNS)
def test_invariants_hold_whatever_happens(site: EngineSettings, run: tuple[list[Op], int]) -> None:
    ops, drain_at = run
    first = State(settings=site)
    if site is SITES["a few at a time"]:  # nothing is ever known of its nodes
        ops = [op for op in ops if op.kind != "expected"]
    state, machine, seen, used = first, Machine(), list[Event](), list[int]()
    steps = []
    for now, op in enumerate(ops):
        event = Drain(time=float(now)) if now == drain_at else op.event(float(now), state)
        if (
            isinstance(event, TrainerSubmitted)
            and event.trainer in used
            and event.trainer not in state.trainers
        ):
            continue  # ids are never used twice
        if isinstance(event, TrainerSubmitted) and event.trainer not in used:
            used.append(event.trainer)
        seen.append(event)
        step = engine_step(state, event, solve)
        steps.append(step)
        machine.before(event, state, step.state)
        check_step(state, event, step)
        check_state(step.state, used)
        machine.perform(step.actions)
        assert machine.workers == {(t.id, n) for t in step.state.active.values() for n in t.nodes}
        state = step.state
    again = first
    for event, step in zip(seen, steps, strict=True):
        repeated = engine_step(again, event, solve)
        assert repeated == step
        again = repeated.state


def test_one_incident_counts_once_however_many_workers_it_takes() -> None:
    world = World(EngineSettings(max_failures=2)).running("abcd")
    for node in "abcd":
        step = world.lost(1, node, blame=True, samples=100.0)
    assert step.ended is None and world.trainer(1).failures == 1
    for _ in range(2):
        step = world.lost(1, "a", blame=True, samples=100.0)
    assert step.ended is not None and step.ended.status is TrainerStatus.FAILED
