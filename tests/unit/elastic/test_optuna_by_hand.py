"""A script that was written for Optuna, run by hand as one trial: what it gets, and what its errors tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "support" / "scripts" / "optuna_script.py"


def run(params: object, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bftrainer.elastic.optuna", json.dumps(params), str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_objective_is_called_once_with_the_given_parameters() -> None:
    done = run({"x": 0.5, "kind": "steep"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "best 0.20500000000000002 {'x': 0.5, 'kind': 'steep'}\n"


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"x": 0.5}, "the script suggests 'kind', which the space of the study lacks; it has x"),
        ({"x": 5.0, "kind": "flat"}, "x: the study gave 5.0, and the script allows Float"),
        ({"x": 0.5, "kind": "odd"}, "kind: the study gave 'odd', and the script allows Categorical"),
        ([], "usage: python -m bftrainer.elastic.optuna"),
    ],
)
def test_what_does_not_go_together_is_told(params: Any, error: str) -> None:
    done = run(params)
    assert done.returncode == 1
    assert error in done.stderr


def test_a_script_without_a_search_is_told(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("print('nothing')")
    assert "has not called study.optimize" in run({}, script).stderr
