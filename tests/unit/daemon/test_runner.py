"""The engine in the daemon: what fails is told, and the daemon goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.daemon import runner as runner_
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.model.actions import Action, StartWorker
from bftrainer.model.events import Event, NodesChanged, TrainerSubmitted
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import Observations, Observed, Trainer, TrainerSpec
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.nodes_world import run, settings_in

SPEC = TrainerSpec(name="t", command=("true",), n_min=1, n_max=2, curve=((2, 2.0),), user="ann")


class Acts:
    """A launcher that fails on some nodes."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.fails_on = ""

    def perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, StartWorker) and action.node == self.fails_on:
                raise KeyError(action.trainer)
            self.actions.append(action)

    def add(self, trainer: int, spec: TrainerSpec) -> None:
        """Known."""

    def forget(self, trainer: int) -> None:
        """Forgotten."""


class Stage:
    """A daemon whose runner is fed by hand."""

    def __init__(self, folder: Path) -> None:
        own = settings_in(folder)
        self.store = SqlStore(own.database)
        self.daemon = Daemon(own, NoNodes(), self.store, WallClock())  # type: ignore[arg-type]
        self.runner, self.acts = self.daemon.runner, Acts()
        self.runner._launcher = self.acts  # type: ignore[assignment]

    async def take(self, *events: Event) -> None:
        for event in events:
            await self.runner.take(event)
        for event in self.daemon.mailbox.waiting():
            await self.runner.take(event)

    async def submit(self, spec: TrainerSpec = SPEC) -> int:
        id_ = await self.daemon.journal.submit(spec, 1.0)
        await self.take(TrainerSubmitted(time=time.time(), trainer=id_, spec=spec))
        return id_

    def troubles(self) -> str:
        return "; ".join(self.daemon.telemetry.troubles.texts(details=True, blocking=True))

    def close(self) -> None:
        self.runner.close()
        self.store.close()


def joined(*nodes: str) -> NodesChanged:
    return NodesChanged(time=time.time(), joined=frozenset(nodes))


def left(*nodes: str) -> NodesChanged:
    return NodesChanged(time=time.time(), left=frozenset(nodes))


def test_an_allocator_that_fails_is_replaced_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = runner_.decide

    def odd(problem: Problem, own: EngineSettings) -> Plan:
        if own.allocator != "knapsack":
            raise ArithmeticError("what the solver calls a solution breaks a constraint")
        return allocate(problem, own)

    monkeypatch.setattr(runner_, "decide", odd)

    async def story() -> None:
        stage = Stage(tmp_path)
        id_ = await stage.submit()
        await stage.take(joined("a"))
        assert stage.runner.state.active[id_].nodes == {"a"}
        assert stage.runner.last_plan is not None
        assert stage.runner.last_plan.fallback == (
            "ArithmeticError: what the solver calls a solution breaks a constraint"
        )
        stage.close()

    run(story)


def test_without_any_plan_nodes_are_given_back_and_the_daemon_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        id_ = await stage.submit()
        await stage.take(joined("a", "b"))

        def odd(problem: Problem, own: EngineSettings) -> Plan:
            raise ZeroDivisionError

        monkeypatch.setattr(runner_, "decide", odd)
        await stage.take(left("a"))
        assert stage.runner.state.pool == {"b"}
        assert stage.runner.state.active[id_].nodes == {"b"}
        assert "no plan could be made: ZeroDivisionError; see the log" in stage.troubles()
        monkeypatch.undo()
        await stage.take(joined("c"))
        assert stage.runner.state.active[id_].nodes == {"b", "c"}
        stage.close()

    run(story)


def test_the_trainer_that_no_plan_can_be_made_with_ends_and_the_others_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        first = await stage.submit()
        odd = await stage.submit(replace(SPEC, name="odd", curve=None, user="eve"))
        state = stage.runner.state
        seen = Observations(speeds=((None, 1, Observed(1, ("fast",))),))  # type: ignore[arg-type]
        poison: Trainer = replace(state.active[odd], observed=seen)
        stage.runner.state = replace(state, active={**state.active, odd: poison})
        assert stage.runner.curves(stage.runner.trainers()) == {first: ((2, 2.0),), odd: ((2, 2.0),)}
        await stage.take(joined("a"))
        assert list(stage.runner.state.active) == [first]
        assert stage.runner.state.active[first].nodes == {"a"}
        stage.close()

    run(story)


def test_one_action_that_fails_keeps_none_of_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        await stage.submit()
        stage.acts.fails_on = "a"
        await stage.take(joined("a", "b"))
        assert [a.node for a in stage.acts.actions if isinstance(a, StartWorker)] == ["b"]
        assert "an action could not be carried out; see the log" in stage.troubles()
        stage.close()

    run(story)
