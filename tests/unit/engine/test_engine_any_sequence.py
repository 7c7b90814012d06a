"""Invariants that hold after any sequence of events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bftrainer.engine.state import State, Step
from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.events import (
    Drain,
    Event,
    GpusChanged,
    HeadroomChanged,
    Lasted,
    MachineChanged,
    Measured,
    NodesChanged,
    PollFailed,
    PriorityChanged,
    Resync,
    TrainerCancelled,
    TrainerEnded,
    TrainerSubmitted,
    UsersBarred,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.gpus import node_of, on_whole_nodes
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings, Share, ShareNodes
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import (
    Cost,
    Trainer,
    TrainerSpec,
)
from tests.support.engine_world import make_spec, step_of

NODES = ("a:0", "a:1", "a:2", "b:0", "b:1", "c:0", "d:0", "d:1")
"""GPUs where these are shared out; elsewhere nodes with odd names."""
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
        node = min(self.nodes, default="a:0")
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
                if "d:0" in self.nodes:
                    spec = with_sizes(spec, self.number)
                if "d:1" in self.nodes:
                    fat = ((spec.n_max, 3.0 * spec.n_max),) if "d:1" in self.others else ()
                    spec = replace(spec, curves=(("fat", fat),), priority=2.0)
                if "b:1" in self.others and spec.curve:
                    spec = replace(spec, across=tuple((n, rate / 2) for n, rate in spec.curve))
                elif "a:2" in self.others:
                    spec = on_whole_nodes(spec, 2)
                if "c:0" in self.others and state.settings.share is Share.NODE:
                    spec = replace(spec, workers=1 + self.number)
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
                    late=self.number > 2,
                    samples=float(len(self.others)),
                )
            case "ended":
                return TrainerEnded(time=now, trainer=self.trainer, generation=generation)
            case "measured":
                up = Cost(stall_s=float(self.number)) if self.others else None
                point = (1 + len(self.nodes), 1.0 + self.number)
                return Measured(time=now, trainer=self.trainer, generation=generation, point=point, up=up)
            case "machine":
                sizes = {"fat": len(self.nodes), "": len(self.others), "thin": self.number}
                return MachineChanged(
                    time=now, nodes=sizes, gpus={"fat": {2: sizes["fat"]}} if self.others else {}
                )
            case "gpus":
                told = {"ann": dict.fromkeys(self.others, self.number or None)}
                return GpusChanged(time=now, nodes=dict.fromkeys(self.nodes, self.number), told=told)
            case "barred":
                users = ("ann", "bob")[: self.number % 3]
                off = {("ann", "bob")[self.number % 2]: self.nodes} if self.nodes else {}
                return UsersBarred(time=now, users=dict.fromkeys(users, "its pilots fail"), nodes=off)
            case "cancel":
                return TrainerCancelled(time=now, trainer=self.trainer)
            case "resync":
                return Resync(time=now, trainer=self.trainer, generation=generation)
            case "lasted":
                return Lasted(time=now, trainer=self.trainer, generation=generation)
            case "poll failed":
                return PollFailed(time=now, reason="timeout")
            case "priority":
                return PriorityChanged(time=now, trainer=self.trainer, to=1.0 + self.number)
            case "headroom":
                return HeadroomChanged(time=now, share=0.1, reason="at risk")
        return Drain(time=now)


def with_sizes(spec: TrainerSpec, number: int) -> TrainerSpec:
    """A spec that allows multiples or listed sizes only."""
    sizes = [
        AllowedSizes(multiple_of=2),
        AllowedSizes(listed=(1, 2, 4, 8)),
        AllowedSizes(multiple_of=3),
        AllowedSizes(listed=(2, 5)),
        AllowedSizes(listed=(4,)),
    ][number]
    least, most = sizes.above(0), sizes.listed[-1] if sizes.listed else 6
    return replace(spec, n_min=least, n_max=most, sizes=sizes)


KINDS = ["nodes"] * 6 + ["submit"] * 4 + ["ready"] * 8 + ["lost"] * 3 + ["measured"] * 2
KINDS += [
    "ended",
    "cancel",
    "resync",
    "lasted",
    "poll failed",
    "headroom",
    "priority",
    "expected",
    "expected",
    "machine",
]
KINDS += ["barred", "barred", "gpus", "gpus"]
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
    placed = [t for t in state.active.values() if t.id not in state.displaced]
    without = [t for t in state.trainers.values() if t not in placed]
    assert state.displaced <= state.active.keys()
    assert not any(state.active[id_].nodes for id_ in state.displaced), "nodes without a place"
    if limit is None:
        assert not state.displaced
    else:
        check_places(state, placed, [t for t in without if can_run(state, t)], limit)
    assert state.active.keys() | {t.id for t in state.waiting} == state.trainers.keys() <= set(ids)
    queue = [(-t.spec.priority, ids.index(t.id)) for t in state.waiting]
    assert queue == sorted(queue), "not by priority and arrival"
    assert state.since.keys() == state.pool
    assert not state.node_info or state.node_info.keys() == state.pool
    check_constraints(state)
    check_neighbours(state)
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
        assert not t.nodes or len(t.nodes) in sizes_of(t.spec)
        if t.members and not t.joining:
            assert len(t.members) in sizes_of(t.spec), "it trains on a size that is not allowed"
        if state.draining:
            assert not t.nodes


def check_neighbours(state: State) -> None:
    """Trainers that may not share a node do not, where GPUs are shared out."""
    own = state.settings
    on = {t.id: set(map(node_of, t.nodes)) for t in state.active.values()}
    for one, other in combinations(state.active.values(), 2):
        if own.share is Share.GPU and on[one.id] & on[other.id]:
            assert own.share_nodes is ShareNodes.USERS or one.spec.user == other.spec.user
            assert not own.avoid_interference or 1 in (len(on[one.id]), len(on[other.id]))


def sizes_of(spec: TrainerSpec) -> list[int]:
    """The node counts that a spec allows, spelt out."""
    within, listed = range(spec.n_min, spec.n_max + 1), spec.sizes.listed
    return [n for n in within if n % spec.sizes.multiple_of == 0 and (not listed or n in listed)]


def can_run(state: State, t: Trainer) -> bool:
    """Whether there are enough nodes for it, idle or not."""
    settings = state.settings
    unusable = {name for name, points in t.spec.curves if not points}
    small = {
        name: sum(n for g, n in own.items() if g < t.spec.workers) for name, own in state.gpus.machine.items()
    }
    if t.spec.workers < 2:
        small = {}
    most = [
        n - small.get(name, 0) for name, n in (state.machine or {"": 1000}).items() if name not in unusable
    ]
    if state.set_aside(t):
        return False
    return (
        settings.user_max_nodes in (None, *range(t.spec.n_min, 100)) and max(most, default=0) >= t.spec.n_min
    )


def check_places(state: State, placed: list[Trainer], without: list[Trainer], limit: int) -> None:
    """No place is empty while somebody could use it, and no user has two more than another that waits."""
    assert len(placed) == limit or not without
    assert len(placed) <= limit
    count = Counter(t.spec.user for t in placed)
    for t in without:
        rich = [u for u in placed if count[u.spec.user] >= count[t.spec.user] + 2]
        assert all(u.spec.priority > t.spec.priority for u in rich)


def check_constraints(state: State) -> None:
    """No trainer mixes classes or uses one that it cannot, and no user holds more nodes than the cap."""
    of = {node: name for name, nodes in state.settings.node_classes.items() for node in nodes}
    for t in state.active.values():
        classes = {of.get(node, "") for node in t.nodes}
        assert len(classes) <= 1, f"trainer {t.id} mixes {classes}"
        assert not classes & {name for name, points in t.spec.curves if not points}
    cap = state.settings.user_max_nodes
    for user in ("ann", "bob"):
        total = sum(len(t.nodes) for t in state.active.values() if t.spec.user == user)
        assert cap is None or total <= cap, f"{user} holds {total} nodes"


def check_end(before: State, event: Event, step: Step) -> None:
    """A told end counts, whatever was published since its membership."""
    if isinstance(event, TrainerEnded):
        known = before.trainers.get(event.trainer)
        assert (step.ended is not None) == (known is not None and event.generation <= known.published)


def too_few(state: State, old: Trainer, new: Trainer) -> frozenset[str]:
    """The nodes that have too few GPUs for a trainer's workers; it gains none of these."""
    small = state.gpus.too_few(old.spec, old.nodes | new.nodes)
    assert not (new.nodes - old.nodes) & small, "its workers find too few GPUs there"
    return small


def lost_by(event: Event, old: Trainer) -> frozenset[str]:
    """The node on which a trainer has just lost its worker."""
    if not isinstance(event, WorkerLost) or event.trainer != old.id:
        return frozenset()
    return frozenset({event.node} if event.generation == old.started.get(event.node) else ())


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
            off = state.kept_off.get(new.spec.user, frozenset())
            assert action.node not in off or (old is not None and action.node in old.nodes), "kept off"
        if isinstance(action, Regroup):
            assert action.members == new.members
            assert new.published == action.generation
            assert len(action.members) in (0, *sizes_of(new.spec)), "a membership of a size not allowed"
            assert set(action.leaving) <= set(old.members if old else ()) - set(action.members)
    left = event.left if isinstance(event, NodesChanged) else frozenset()
    if state.settings.max_parallel is not None:
        passed = dict[tuple[float, str], Trainer]()
        for t in before.waiting:
            own = (t.spec.priority, t.spec.user)
            if t.id in state.active:
                assert own not in passed, f"{t.id} comes before {passed[own].id}"
            elif t.id in state.waiting and can_run(state, t):
                passed[own] = t
    for id_, new in state.active.items():
        old = before.trainers.get(id_)
        if old is None:
            continue
        newly = id_ not in state.displaced and (id_ in before.displaced or id_ in before.waiting)
        if state.settings.max_parallel is not None and newly:
            assert can_run(state, new), "a place for what can never run"
        assert state.settings.max_parallel is not None or id_ in before.active or new.nodes
        off = event.nodes.get(old.spec.user, frozenset()) if isinstance(event, UsersBarred) else frozenset()
        small = too_few(state, old, new)
        left |= small & lost_by(event, old)
        off |= small if isinstance(event, GpusChanged) else frozenset()
        kept = old.nodes - left - (off - frozenset(old.members))
        assert not (new.nodes & off) - frozenset(old.members), "it waits where its user gets no pilots"
        assert new.nodes <= kept or new.nodes >= kept, "it migrates"
        assert new.generation >= old.generation
        assert new.published >= old.published
        survivors = tuple(n for n in old.members if n in new.members)
        assert new.members[: len(survivors)] == survivors, "survivors keep their order, before newcomers"
        just_now = event.nodes if isinstance(event, WorkersReady) else frozenset()
        assert set(new.members) - set(old.members) <= old.warm | just_now, "a cold worker is a member"
        assert id_ in regrouped or set(new.members) <= set(old.members), "a member that was never published"
        gone = set(old.members) - set(new.members)
        if gone and len(new.members) in sizes_of(new.spec):
            assert id_ in regrouped, "survivors were not told"


SITES = {
    "GPUs": EngineSettings(
        max_parallel=None,
        max_failures=1,
        ageing_s=10.0,
        user_max_nodes=5,
        share=Share.GPU,
        gpus_per_node=2,
    ),
    "GPUs, users on a node, on classes": EngineSettings(
        max_parallel=3,
        max_failures=1,
        share=Share.GPU,
        share_nodes=ShareNodes.USERS,
        avoid_interference=False,
        node_classes={"fat": frozenset("ab")},
        departure_groups="joined",
    ),
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


A, B, C, OTHERS = frozenset({"a:0"}), frozenset({"a:0", "b:0"}), frozenset({"a:0", "c:0"}), frozenset({"a:2"})
SHORT_TWICE = [
    Op("submit", 4, A, OTHERS, 0),
    Op("barred", 1, B, frozenset(), 1),
    Op("nodes", 1, frozenset({"a:0", "a:1", "a:2", "b:0", "b:1"}), frozenset(), 0),
    Op("expected", 1, C, C, 0),
    Op("submit", 2, frozenset(), frozenset(), 1),
]
"""Of a user that is kept off two nodes: a second plan, too, has nodes for a trainer that it may not use."""


@pytest.mark.parametrize("site", SITES.values(), ids=SITES.keys())
@settings(max_examples=50, deadline=None)
@given(run=RUNS)
@example(run=(SHORT_TWICE, 60))
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
        step = step_of(state, event)
        steps.append(step)
        machine.before(event, state, step.state)
        check_step(state, event, step)
        check_end(state, event, step)
        check_state(step.state, used)
        machine.perform(step.actions)
        assert machine.workers == {(t.id, n) for t in step.state.active.values() for n in t.nodes}
        state = step.state
    again = first
    for event, step in zip(seen, steps, strict=True):
        repeated = step_of(again, event)
        assert repeated == step
        again = repeated.state
