"""One trial of a study, as `bftrainer study show --trial` tells of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bftrainer.cli import app
from bftrainer.cli.studies import show
from bftrainer.cli.studies.trial_text import tell
from bftrainer.errors import BftrainerError
from bftrainer.spec.parse import parse
from bftrainer.state_dir.folder import user_name

ROW: dict[str, Any] = {
    "number": 3,
    "status": "failed",
    "reason": "exit code 1",
    "params": {"lr": 0.5},
    "results": [[100, 2.5]],
    "samples": 150,
    "until": 400,
    "course": [[100, 2.5]],
    "failures": 2,
    "trainer": "s.3.2",
    "trainer_id": 17,
    "command": ["python", "t.py", "--lr", "0.5"],
}
STUDY: dict[str, Any] = {"name": "s", "metric": "loss", "trials": 8, "table": [ROW]}


class Daemon:
    """Says where a trainer's workers print."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def call(self, method: str, path: str) -> dict[str, str]:
        assert path == "trainers/17", "another study may have had a trainer of this name"
        return {"log_dir": str(self._folder), "user": user_name()}


def test_a_trial_that_failed_comes_with_what_it_printed_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n1.log").write_text("begin\n" * 30 + "ValueError: too steep\n")
    tell(Daemon(tmp_path), STUDY, 3)  # type: ignore[arg-type]
    said = capsys.readouterr().out.splitlines()
    assert said[:4] == [
        "trial 3 of s: failed (exit code 1)",
        "  lr: 0.5",
        "loss 2.5 after 100 samples",
        "150 of 400 samples  ▁",
    ]
    assert "trainer 17 (s.3.2): python t.py --lr 0.5" in said
    assert said[-2:] == ["n1: ValueError: too steep", "more: bftrainer logs -n 1000 17"]
    assert said.count("n1: begin") == 14


def test_a_trial_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BftrainerError, match="s has no trial 4: 1 of 8 have begun"):
        tell(Daemon(tmp_path), STUDY, 4)  # type: ignore[arg-type]


def test_a_trial_comes_as_a_spec_that_runs_it_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
name: s
trainer: {command: [python, t.py, --lr, "{lr}"], nodes: {max: 2}}
space: {lr: {float: [0.1, 1.0]}}
metric: loss
trials: 8
budget: 400
"""
    found = {**STUDY, "text": text, "base": "/work", "table": [{**ROW, "value": 2.5}]}
    client = SimpleNamespace(study=lambda name: found)
    monkeypatch.setattr(show, "connect", lambda config, state_dir: client)
    words = ["study", "show", "s", "--trial", "3", "--spec"]
    done = CliRunner().invoke(app, words)
    assert done.output.startswith("# trial 3 of s: failed after 150 samples, loss 2.5\nnodes:"), done.output
    wanted = parse(done.output, "again.yaml", Path("/elsewhere"))
    assert (wanted.name, wanted.samples, wanted.workdir) == ("s.3.again", 400, "/work")
    assert wanted.command == ("python", "t.py", "--lr", "0.5")
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).output) == yaml.safe_load(done.output)
    refused = CliRunner().invoke(app, ["study", "show", "s", "--spec"])
    assert refused.exit_code == 2 and "Add --trial N" in refused.output
