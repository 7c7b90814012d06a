"""Nothing that others have written does anything to a terminal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import bftrainer.cli
from bftrainer import worker_output
from bftrainer.api.client import TrainerList
from bftrainer.cli import (
    cancel_command,
    events_command,
    list_command,
    logs_command,
    pool_command,
    show_command,
    status_command,
)
from bftrainer.cli.shared.replays import calibration
from bftrainer.cli.shared.replays import figures as replay_figures
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import printable, say
from bftrainer.replay.calibrate.compare import HistoryComparison, Line
from bftrainer.state_dir.folder import user_name

EVIL = "a\x1b]0;title\x07\x1b[2Jb\x7f\x9b31m\ud800\u202e\rc"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e]")

TRAINER: dict[str, Any] = {
    "id": 1,
    "name": EVIL,
    "user": EVIL,
    "status": "waiting",
    "reason": EVIL,
    "note": EVIL,
    "nodes": [EVIL],
    "members": [EVIL],
    "workers": {EVIL: EVIL},
    "step": 1,
    "epoch": 1,
    "samples": 1,
    "work": None,
    "rate": None,
    "metrics": {EVIL: 1.0},
    "submitted_at": 0.0,
    "ended_at": None,
    "command": ["python", EVIL],
    "n_min": 1,
    "sizes": [],
    "multiple_of": 1,
    "n_max": 2,
    "workdir": EVIL,
    "log_dir": EVIL,
    "checkpoint_dir": EVIL,
    "scalability": {"mode": "auto", "may_ask_for": 1, "sizes": []},
    "costs": {},
    "pauses": [{"time": 0.0, "kind": EVIL, "size": 1, "step": 1, "pause_s": 1.0, "lost_steps": 0}],
}
PLAN = {
    "allocator": "knapsack",
    "status": "optimal",
    "proven": True,
    "objective": 1.0,
    "solve_ms": 1.0,
    "note": EVIL,
    "fallback": EVIL,
    "allocation": {},
}
STATUS = {
    "version": "1",
    "pid": 1,
    "up_s": 1.0,
    "state": "degraded",
    "problems": [EVIL],
    "pool": 1,
    "unused": 0,
    "pilots": 1,
    "headroom": {"setting": "auto", "extra": 0.1, "wanted": 1, "usable": 12, "free": 8},
    "trainers": {},
    "running": [TRAINER],
    "running_left_out": 3,
    "last_plan": PLAN,
    "bounds_hit": [f"max_connections: once, most by {EVIL}"],
}
EVENT = {
    "id": 1,
    "time": 0.0,
    "kind": "TrainerEnded",
    "pool_size": 1,
    "data": {"trainer": 1, "reason": EVIL, "node": EVIL},
    "plan": PLAN,
    "actions": [{"kind": "StartWorker", "trainer": 1, "generation": 1, "data": {"node": EVIL}}],
}
NODE = {
    "node": EVIL,
    "state": "idle",
    "why": EVIL,
    "until": None,
    "pilot": None,
    "trainer": EVIL,
    "role": "member",
}
MORE = {"partitions": [EVIL], "features": [EVIL], "gres": EVIL, "gpus": 0, "gpus_had": 0, "phase": EVIL}
MORE |= {"since": None, "devices": EVIL}


class Client:
    """A daemon all of whose texts are hostile."""

    def call(self, method: str, path: str, **query: object) -> object:
        of_status = {"status": STATUS, "pool": {"size": 1, "nodes": [{**NODE, **MORE}]}}
        ended = {**TRAINER, "workers": {}, "ended_at": 1.0}
        return of_status.get(path, ended if method == "GET" else TRAINER)

    def trainers(self, ended: int, *, every: bool = False) -> TrainerList:
        return TrainerList([TRAINER, {**TRAINER, "user": "other"}], 1, 1)

    def rows(self, what: str, limit: int, trainer: str | None) -> object:
        return [EVENT]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """What a command prints."""

    def run(module: Any, *words: str) -> str:
        monkeypatch.setattr(module, "connect", lambda config, state_dir: Client())
        command: click.Command = module.command
        done = CliRunner().invoke(command, list(words), env={"COLUMNS": "500"})
        assert done.exit_code == 0, (done.stderr, done.exception)
        return done.stdout if "--json" in words else done.stdout + done.stderr

    yield run


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (list_command, ()),
        (show_command, ("1",)),
        (status_command, ()),
        (events_command, ()),
        (pool_command, ("--long",)),
        (cancel_command, ("1",)),
    ],
)
def test_control_characters_are_escaped(
    told: Callable[..., str], module: Any, words: tuple[str, ...]
) -> None:
    text = told(module, *words)
    assert not CONTROL.search(text), ascii(text)
    assert r"a\x1b]0;title\x07\x1b[2Jb\x7f\x9b31m\ud800\u202e\rc" in text
    found = json.loads(told(module, *words, "--json"))
    assert found


def test_every_command_prints_through_one_place() -> None:
    folder = Path(bftrainer.cli.__file__).parent
    for path in folder.rglob("*.py"):
        if path.name != "terminal.py":
            assert not re.search(r"click\.s?echo\(|(?<![\w.])print\(", path.read_text()), path
        if path.name not in ("tables.py", "progress.py", "picture.py") and path.parent.name != "live":
            assert "rich" not in path.read_text(), path


def test_lines_and_tabs_of_ours_stay() -> None:
    run = CliRunner()

    @click.command()
    def command() -> None:
        say("one\n\ttwo\x1b")
        print_table(("", ""), [("a", ["x\n", "y"]), ("b", None)])
        print_json({"x": "\x7f\x9b\ud800"})

    out = run.invoke(command).output
    assert out.startswith("one\n\ttwo\\x1b\n")
    assert [line.split() for line in out.splitlines()[2:5]] == [["a", r"x\n"], ["y"], ["b"]]
    assert json.loads(out.partition("{")[1] + out.partition("{")[2]) == {"x": "\x7f\x9b\ud800"}
    assert not CONTROL.search(out.replace("\t", ""))
    assert printable(None) == ""


@pytest.mark.parametrize("own", [True, False])
def test_logs_of_others_are_escaped_also_in_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    (tmp_path / "n1.log").write_text("\x1b[31mred\n")
    user = user_name()  # of the file
    answer = {"log_dir": str(tmp_path), "user": user}
    client = type("Client", (), {"call": lambda self, *words: answer})()
    monkeypatch.setattr(logs_command, "connect", lambda config, state_dir: client)
    monkeypatch.setattr(worker_output, "user_name", lambda: user if own else "an admin")
    out = CliRunner().invoke(logs_command.command, ["1"], color=True).output
    assert out == ("n1: \x1b[31mred\n" if own else "n1: \\x1b[31mred\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_others_have_put_into_ones_own_folder_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "n1.log").write_text("\x1b]0;owned\x07\n")
    os.chown(tmp_path / "n1.log", 65534, 65534)
    client = type("Client", (), {"call": lambda *words: {"log_dir": str(tmp_path), "user": user_name()}})()
    monkeypatch.setattr(logs_command, "connect", lambda config, state_dir: client)
    said = CliRunner().invoke(logs_command.command, ["1"], color=True).output
    assert said == "nothing has been printed yet\n"


def test_figures_of_replays_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    figures: dict[str, Any] = dict.fromkeys(replay_figures.LABELS)
    replay_figures.print_figures({**figures, "runtime_by_model_h": {"[red]m[/red]\x1b[2J": 1.0}})
    line = Line(name="[link=x]t\x1b[31m", recorded=1.0, predicted=2.0)
    result: Any = None
    calibration.show(HistoryComparison(trainers=(line,), total=line, result=result), as_json=False)
    out = capsys.readouterr().out
    assert r"[red]m[/red]\x1b[2J" in out and r"[link=x]t\x1b[31m" in out and not CONTROL.search(out)
