"""`events` and `status` say which plans another allocator made than the one that was asked for, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bftrainer.cli import events_command, status_command

PLAN = {
    "allocator": "knapsack",
    "status": "feasible",
    "proven": False,
    "objective": 7.0,
    "allocation": {"1": ["n1"]},
    "solve_ms": 1.0,
    "note": "",
    "fallback": "",
}
FALLEN = {**PLAN, "fallback": "no licence"}


def event(id_: int, plan: dict[str, Any] | None) -> dict[str, Any]:
    data = {"left": [], "joined": ["n1"]}
    return {
        "id": id_,
        "time": 0.0,
        "kind": "NodesChanged",
        "pool_size": 1,
        "data": data,
        "plan": plan,
        "actions": [],
    }


def status(plan: dict[str, Any]) -> dict[str, Any]:
    problems = [plan["fallback"]] if plan["fallback"] else []
    return {
        "version": "1",
        "pid": 1,
        "up_s": 1.0,
        "state": "degraded" if problems else "ok",
        "problems": problems,
        "bounds_hit": [],
        "pool": 1,
        "unused": 0,
        "pilots": 1,
        "headroom": {"setting": "auto", "extra": 0.1, "wanted": 1, "usable": 12, "free": 8},
        "trainers": {},
        "running": [],
        "last_plan": plan,
    }


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[click.Command, object], str]:
    """What a command prints when the daemon answers so."""

    def run(command: click.Command, answer: object) -> str:
        class Client:
            def call(self, method: str, path: str, **query: object) -> object:
                return answer

            def rows(self, what: str, limit: int, trainer: str | None) -> object:
                return answer

        for module in (events_command, status_command):
            monkeypatch.setattr(module, "connect", lambda config, state_dir: Client())
        done = CliRunner().invoke(command, [], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    return run


def test_events_mark_the_plans_that_fell_back(answered: Callable[[click.Command, object], str]) -> None:
    said = answered(events_command.command, [event(1, PLAN), event(2, FALLEN), event(3, None)])
    lines = [line for line in said.splitlines() if "NodesChanged" in line or "nodes +n1" in line]
    lines = [line for line in lines if not line.startswith("nodes")]  # the legend
    assert ["fell back" in line for line in lines] == [False, True, False]
    assert "no licence" in said


def test_status_says_why_the_last_plan_fell_back(answered: Callable[[click.Command, object], str]) -> None:
    assert "fell back" not in answered(status_command.command, status(PLAN))
    said = answered(status_command.command, status(FALLEN))
    assert "degraded" in said
    assert "fell back: no licence" in said
