"""The state that a restarted daemon begins with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bftrainer.engine.restore import restore
from bftrainer.model.events import (
    NodesChanged,
)
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import (
    Trainer,
)
from tests.support.engine_world import CLASSES, EVERYBODY, make_spec, step_of


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
    assert next(iter(state.waiting)) == trainers[3]
    assert state.since == dict.fromkeys("abc", 70.0)
    step = step_of(state, NodesChanged(time=71.0, joined=frozenset("d")))
    assert step.state.active[2].nodes == set("abcd")


def test_restore_leaves_a_trainer_a_size_that_it_allows() -> None:
    trainers = [stored(1, "abcd", n_max=4, sizes=AllowedSizes(listed=(1, 2, 4)))]
    state = restore(EngineSettings(), frozenset("abd"), trainers)
    assert state.active[1].members == ("a", "b")
    assert state.active[1].nodes == set("ab")


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
    step = step_of(state, NodesChanged(time=8.0, joined=frozenset("y")))
    assert {i: t.nodes for i, t in step.state.active.items()} == {1: set("cd"), 2: set("ab")}


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
