"""bftrainer metrics: the last points as a table, all of them for files and other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import metrics_command
from tests.unit.series.test_points import row


class Client:
    def __init__(self, count: int) -> None:
        self.stored = [{"id": n, **row(n + 1, loss=1.0)} for n in range(count)]
        self.asked: list[int] = []

    def call(self, method: str, path: str, **query: object) -> dict[str, Any]:
        return {"id": 7, "name": "digits"}

    def rows(self, what: str, limit: int, trainer: str | None = None) -> list[dict[str, Any]]:
        assert (what, trainer) == ("reports", "7")
        self.asked.append(limit)
        return self.stored[-limit:]


def run(monkeypatch: pytest.MonkeyPatch, count: int, *words: str) -> Result:
    client = Client(count)
    monkeypatch.setattr(metrics_command, "connect", lambda *_: client)
    return CliRunner(env={"COLUMNS": "200"}).invoke(metrics_command.command, ["digits", *words])


def test_a_table_has_the_last_points_and_says_that_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, 30)
    assert "loss=1" in done.stdout and "-n takes more than 20" in done.stdout
    assert len(done.stdout.splitlines()) == 1 + 20 + 1
    assert "left out" not in run(monkeypatch, 20).output


def test_what_is_no_number_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(1)
    client.stored[0]["metrics"] = {"loss": None}  # JSON has neither NaN nor infinity
    monkeypatch.setattr(metrics_command, "connect", lambda *_: client)
    told = {
        w: CliRunner().invoke(metrics_command.command, ["digits", *w.split()]).stdout for w in ("", "--csv")
    }
    assert "loss=nan/inf" in told[""] or "loss=nan" in told[""]
    assert told["--csv"].splitlines()[1].endswith("nan")


def test_csv_and_json_have_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run(monkeypatch, 30, "--csv").stdout.splitlines()) == 31
    assert len(json.loads(run(monkeypatch, 30, "--json").stdout)) == 30
    some = run(monkeypatch, 30, "--csv", "-n", "5")
    assert len(some.stdout.splitlines()) == 6 and "-n takes more than 5" in some.stderr
    assert run(monkeypatch, 1, "--csv", "--json").exit_code == 2


def test_a_picture_and_an_export_can_be_had_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    words = ("--plot", str(tmp_path / "a.png"), "--tensorboard", str(tmp_path))
    done = run(monkeypatch, 30, *words)
    assert done.exit_code == 0 and done.stdout == "" and "30 points in" in done.stderr
    assert (tmp_path / "a.png").exists() and len(list((tmp_path / "digits-7").iterdir())) == 1


def test_nothing_stored_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "nothing is reported" in run(monkeypatch, 0).output
    done = run(monkeypatch, 0, "--plot", str(tmp_path / "a.png"))
    assert done.exit_code == 1 and "nothing is reported" in str(done.exception)
