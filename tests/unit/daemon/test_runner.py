"""The engine in the daemon: what fails is told, and the daemon goes on."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.daemon import runner as runner_
from bftrainer.engine import due
from bftrainer.model.actions import StartWorker
from bftrainer.model.events import NodesChanged, PlanDue, TrainerCancelled, TrainerSubmitted
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import Observations, Observed, Trainer, TrainerSpec
from tests.support.fed_daemon import FedDaemon
from tests.support.nodes_world import run, settings_in

SPEC = TrainerSpec(name="t", command=("true",), n_min=1, n_max=2, curve=((2, 2.0),), user="ann")


class Stage(FedDaemon):
    """A daemon of which the test asks what is wrong."""

    def troubles(self) -> str:
        return "; ".join(self.daemon.telemetry.troubles.texts(details=True, blocking=True))


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
        id_ = await stage.submit(SPEC)
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
        id_ = await stage.submit(SPEC)
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


def test_shares_are_looked_at_after_a_while_where_a_user_waits_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "TURN_S", 0.0)

    async def story() -> None:
        stage = Stage(tmp_path, user_shares={"others": 1.0})
        await stage.submit(SPEC)
        await stage.take(joined("a", "b"))
        assert not stage.daemon.mailbox.waiting(), "nobody waits for a turn"
        await stage.daemon.journal.submit(replace(SPEC, user="bob", n_min=2), 1.0)
        submitted = TrainerSubmitted(
            time=time.time() - 1.0, trainer=2, spec=replace(SPEC, user="bob", n_min=2)
        )
        for _ in range(2):
            await stage.runner.take(submitted)
        assert [type(event) for event in stage.daemon.mailbox.waiting()] == [PlanDue]
        await stage.runner.take(PlanDue(time=time.time() - 1.0))
        assert [type(event) for event in stage.daemon.mailbox.waiting()] == [PlanDue], "and again"
        stage.close()

    run(story)


def test_the_trainer_that_no_plan_can_be_made_with_ends_and_the_others_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        first = await stage.submit(SPEC)
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
        await stage.submit(SPEC)
        stage.acts.fails_on = "a"
        await stage.take(joined("a", "b"))
        assert [a.node for a in stage.acts.actions if isinstance(a, StartWorker)] == ["b"]
        assert "an action could not be carried out; see the log" in stage.troubles()
        stage.close()

    run(story)


def test_the_engine_has_a_thread_and_the_settings_of_the_moment_and_what_it_decides_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate, seen = runner_.decide, set[tuple[str, str, bool]]()

    def decide(problem: Problem, own: EngineSettings) -> Plan:
        seen.add((threading.current_thread().name.partition("_")[0], own.allocator, gc.isenabled()))
        return allocate(problem, own)

    monkeypatch.setattr(runner_, "decide", decide)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.daemon.settings.current = settings_in(tmp_path, allocator="equal")
        id_ = await stage.submit(SPEC)
        await stage.take(joined("a"))
        assert seen == {("engine", "equal", False)}, "garbage is collected when it has decided"
        assert gc.isenabled() and stage.runner.state.settings.allocator == "equal"
        assert stage.daemon.index.count("ann") == 1
        await stage.take(TrainerCancelled(time=time.time(), trainer=id_), left("a"))
        assert (stage.daemon.index.count("ann"), stage.acts.forgotten) == (0, [id_])
        stage.close()

    run(story)
