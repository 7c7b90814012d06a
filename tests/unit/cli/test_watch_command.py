"""`bftrainer watch`: nodes over time as characters, trainers and decisions, within the terminal's bounds."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bftrainer.cli import watch_command
from bftrainer.cli.shared.live.nodes import axis, nodes_text
from bftrainer.cli.shared.live.panels import cause
from bftrainer.cli.shared.live.watching import picture
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes
from bftrainer.demo.view import DaemonView
from bftrainer.series.timeline import Occupancy, RescalePause, Stretch, Timeline

SIGNS = {Occupancy.IDLE: "·", Occupancy.STARTING: "░", Occupancy.BUSY: "─", Occupancy.OUT: "x"}


def trainer(id_: int, **more: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "name": f"t{id_}",
        "status": "running",
        "reason": "waits " * 40,
        "members": ["n1"] if id_ == 1 else [],
        "nodes": ["n1"],
        "workers": {},
        "samples": 50,
        "work": 100,
        "rate": 10.0,
        "metrics": {},
        "ended_at": None,
        **more,
    }


def event(id_: int, kind: str = "NodesChanged", **data: Any) -> dict[str, Any]:
    own = {"left": [], "joined": [f"n{id_}"], "vacated": [], "reason": "poll", **data}
    plan = {"allocation": {"1": ["n1"]}}
    return {"id": id_, "time": float(id_), "kind": kind, "data": own, "actions": [], "plan": plan}


@given(st.integers(30, 200), st.lists(st.sampled_from(list(Occupancy)), min_size=1, max_size=9))
def test_each_character_is_what_a_node_was_in_the_middle_of_its_time(
    width: int, uses: list[Occupancy]
) -> None:
    stretches = tuple(Stretch(float(i), float(i + 1), use, 1) for i, use in enumerate(uses))
    line = Timeline(0.0, float(len(uses)), {"n1": stretches}, ())
    shown = nodes_text(line, {1: "t"}, Console(width=width, color_system=None)).plain.split("\n")[0]
    cells = shown.removeprefix("n1 ")
    assert len(cells) == width - 4
    for at, sign in enumerate(cells):
        use = uses[int((at + 0.5) * (len(uses) / len(cells)))]
        assert sign == SIGNS.get(use, "A")


def test_marks_stand_below_the_moment_of_a_rescale() -> None:
    pauses = tuple(
        RescalePause(time, 1, kind, 2, 0.1, 0)
        for time, kind in ((5.0, "join"), (9.99, "loss"), (10.0, "leave"))
    )
    line = Timeline(0.0, 10.0, {"n1": (Stretch(0.0, 10.0, Occupancy.TRAINING, 1),)}, pauses)
    marks = nodes_text(line, {}, Console(width=104, color_system=None)).plain.split("\n")[1]
    assert marks.index("▲") == 3 + 50 and marks.index("▼") == len(marks) - 1 and "✖" not in marks, (
        "one a column"
    )


@given(st.floats(1, 1e5), st.integers(40, 200), st.booleans())
def test_the_axis_is_as_wide_as_the_nodes(span: float, columns: int, ends_now: bool) -> None:
    assert len(axis(span, columns, ends_now=ends_now)) == columns


@pytest.mark.parametrize("height", [24, 50])
def test_the_picture_fits_into_the_terminal(height: int) -> None:
    names = [f"n{i:03}" for i in range(300)]
    idle = (Stretch(0.0, 300.0, Occupancy.IDLE),)
    nodes = dict.fromkeys(names, idle) | {"n299": (Stretch(0.0, 300.0, Occupancy.TRAINING, 1),)}
    pool = {"size": 300, "unit": "node", "nodes": []}
    trainers = [trainer(i) for i in range(1, 60)]
    pause = {"time": 1.0, "trainer": 1, "kind": "join", "size": 2, "pause_s": 0.1, "lost_steps": 0, "step": 1}
    pauses = [{**pause, "generation": i} for i in range(9)]
    view = DaemonView(1.0, pool, trainers, pauses, tuple(event(i) for i in range(1, 9)), 300.0)
    console = Console(width=80, height=height, record=True, color_system=None)
    console.print(picture(view, Timeline(0.0, 300.0, nodes, ()), PhaseTimes(), console))
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert any(line.startswith("n299 A") for line in lines), "what trains is shown"
    assert any("more nodes: bftrainer pool" in line for line in lines)
    assert any("more: bftrainer list" in line for line in lines)


def test_decisions_are_told_in_words() -> None:
    assert cause(event(1, left=["n7"]), {}) == "n1 idle, n7 gone"
    assert cause(event(1, "Measured", trainer=3), {3: "digits"}) == "digits was measured"
    assert cause(event(1, "PlanDue"), {}) == "PlanDue"


class Client:
    """A daemon on whose second answer n2 has joined."""

    def __init__(self) -> None:
        self.asked = 0

    def call(self, method: str, path: str, **query: Any) -> Any:
        if path == "pauses":
            return []
        self.asked += 1
        row = {"state": "idle", "devices": "", "trainer": None, "role": None}
        return {"size": 1, "unit": "node", "nodes": [{"node": f"n{i}", **row} for i in (1, 2)[: self.asked]]}

    def trainers(self, ended: int) -> Any:
        return SimpleNamespace(trainers=[trainer(1)])

    def rows(self, what: str, limit: int) -> list[dict[str, Any]]:
        return [event(1)]


def test_without_a_terminal_a_line_comes_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_command, "connect", lambda config, state_dir: Client())
    monkeypatch.setattr(watch_command, "changes", lambda client, *parts, every_s: range(4))
    lines = CliRunner().invoke(watch_command.command, [], catch_exceptions=False).output.splitlines()
    assert [line.split()[2:4] for line in lines] == [["n1=idle", "|"], ["n1=idle", "n2=idle"]]


def test_as_json_the_course_of_the_nodes_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_command, "connect", lambda config, state_dir: Client())
    out = (
        CliRunner().invoke(watch_command.command, ["--json", "--minutes", "1"], catch_exceptions=False).output
    )
    found = json.loads(out)
    (stretch,) = found["nodes"]["n1"]
    assert stretch["use"] == "idle" and stretch["end"] - stretch["begin"] == pytest.approx(60)
