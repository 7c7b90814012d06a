"""`bftrainer try` on small scripts: a right one is the same whatever happens, a wrong one is told why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "support" / "scripts" / "tried"


def ran(
    folder: Path, spec: dict[str, Any], *options: str, seconds: float = 850
) -> subprocess.CompletedProcess[str]:
    """What `bftrainer try` prints of a spec, as JSON."""
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return subprocess.run(
        [sys.executable, "-m", "bftrainer", "try", "spec.yaml", *options, "--json"],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def tried(folder: Path, script: str, *words: str, launcher: str = "native") -> dict[str, Any]:
    """What `bftrainer try --json` finds of a script; its exit code says whether all is the same."""
    shutil.copy(SCRIPTS / script, folder / "train.py")
    spec = {
        "name": "tried",
        "command": ["python", "train.py", *words],
        "launcher": launcher,
        "nodes": {"min": 1, "max": 3},
    }
    done = ran(folder, spec)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["same"] else 1), done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["spec.yaml", "state", "train.py"]
    return found


def faults(found: dict[str, Any]) -> dict[str, str]:
    """Causes by the runs that show them."""
    return {
        f"{cause['run']}: {cause['cause']}": cause["remedy"] for cause in found["causes"] if cause["fault"]
    }


def runs(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in found["runs"]}


def test_a_right_script_is_the_same_whatever_nodes_do(tmp_path: Path) -> None:
    found = tried(tmp_path, "native.py", "right")
    assert found["same"], found["differences"]
    by_name = runs(found)
    assert {run["status"] for run in by_name.values()} == {"completed"}
    assert by_name["alone"]["steps"] == 40
    assert by_name["several"]["weights_apart"] < 1e-9
    events = "; ".join(by_name["changes"]["events"])
    assert "a node joins" in events
    assert events.count("killed") == 3, events
    assert len(by_name["resumed"]["events"]) == 2


def test_a_counter_of_the_script_is_found_by_what_it_does(tmp_path: Path) -> None:
    found = tried(tmp_path, "native.py", "counter")
    told = faults(found)
    (name,) = (each for each in told if each.startswith("resumed"))
    assert "seen is" in name, told
    assert "parts=" in told[name]
    first = next(
        each for each in found["differences"] if each["run"] == "resumed" and each["what"] == "weights"
    )
    stops = [int(event.split()[1].rstrip(":")) for event in runs(found)["resumed"]["events"]]
    assert stops[0] < first["step"] < stops[1], "a busy machine takes some steps more until it stops"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("sum", "several: its gradients are 0.5 of those on one process"),
        ("log", "resumed: log.csv is opened anew when a process begins"),
        ("noise", ""),
    ],
)
def test_other_mistakes_have_causes_of_their_own_and_dropout_is_none(
    tmp_path: Path, mistake: str, said: str
) -> None:
    found = tried(tmp_path, "native.py", mistake)
    assert found["same"] is not bool(said), found["differences"]
    assert found["random"] is (mistake == "noise")
    assert any(each.startswith(said) for each in faults(found)) or not said


def test_accelerates_own_loop_takes_fewer_steps_and_begins_from_nothing(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    found = tried(tmp_path, "with_accelerate.py", launcher="torchrun")
    told = faults(found)
    assert any("every process takes a whole batch" in each for each in told), told
    assert any("begin from nothing" in each for each in told), told
    assert {name: run["steps"] for name, run in runs(found).items() if name != "changes"} == {
        "alone": 40,
        "several": 20,
        "resumed": 40,
    }


@pytest.mark.parametrize("mistake", [pytest.param("right", marks=pytest.mark.nightly), "unsaved"])
def test_a_torchrun_script_that_forgets_its_optimizer(tmp_path: Path, mistake: str) -> None:
    found = tried(tmp_path, "with_torchrun.py", mistake, launcher="torchrun")
    assert found["same"] is (mistake == "right"), found["differences"]
    if mistake == "unsaved":
        first = next(each for each in found["differences"] if each["run"] == "resumed")
        assert (first["what"], first["step"]) in {("weights", 14), ("weights", 15)}, first


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["with_lightning.py", "with_huggingface.py"])
def test_frameworks_with_the_callback_end_the_same(tmp_path: Path, script: str) -> None:
    pytest.importorskip(
        script.removesuffix(".py").removeprefix("with_").replace("huggingface", "transformers")
    )
    found = tried(tmp_path, script, launcher="torchrun")
    assert found["same"], found["differences"]


def test_partial_back_propagation_of_ones_own_model_is_measured(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "native.py", tmp_path / "train.py")
    spec = {"name": "mine", "command": ["python", "train.py", "right"], "nodes": {"max": 2}}
    done = ran(tmp_path, spec, "--partial", "2", "--steps", "16", seconds=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    half, whole = found["parts"]
    assert half["saved"] < whole["saved"]
    assert half["gradient"] == 4 * (8 + 1) < whole["gradient"] == 4 * (8 + 1 + 40 + 8)
    ways = {way["name"]: way for way in found["ways"]}
    assert [*ways] == [
        "full",
        "partial",
        "full, fewer steps",
        "full, 1 worker",
        "full, exchanging half as often",
    ]
    assert 0.5 <= ways["partial"]["bytes"] < 1
    assert all(way["loss"] > 0 and way["compute"] > 0 for way in ways.values())
