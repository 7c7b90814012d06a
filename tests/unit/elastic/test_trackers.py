"""The recipes of docs/trackers.md for TensorBoard, MLflow and Weights & Biases: one run, whatever ends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.site import ROOT

PAGE = (ROOT / "docs" / "trackers.md").read_text()
RECIPES = dict(re.findall(r"\*\*(TensorBoard|MLflow|W&B)\*\*.*?\n```python\n(.*?)```", PAGE, re.DOTALL))
SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
run = SimpleNamespace(rank=int(sys.argv[1]), name="images", id=7, folder=Path.cwd())
run.position = SimpleNamespace(step=int(sys.argv[2]))
for step in range(run.position.step, run.position.step + 3):
    loss = 1 / (step + 1)
"""


def train(recipe: str, folder: Path) -> None:
    """Rank 0 takes three steps and dies, its successor goes on from the second; rank 1 does what they do."""
    imports, loop = recipe.split("\n\n", 1)
    made, log = loop.rsplit("\n\n", 1)
    indented = "\n".join(f"    {line}" for line in log.splitlines())
    head, body = SCRIPT.rsplit("for step", 1)
    script = f"{imports}\n{head}\n{made}\nfor step{body}    run.position.step = step\n{indented}\n"
    for rank, first in ((0, 0), (1, 0), (0, 2)):
        words = [sys.executable, "-c", script, str(rank), str(first)]
        subprocess.run(words, cwd=folder, check=True, timeout=120)


def test_tensorboard_shows_one_run_without_the_steps_that_were_repeated(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(RECIPES["TensorBoard"], tmp_path)
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.*")}
    found = EventAccumulator(str(folder)).Reload().Scalars("loss")
    assert [(one.step, one.value) for one in found] == [(n, pytest.approx(1 / (n + 1))) for n in range(5)]


def test_mlflow_has_one_run(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    train(RECIPES["MLflow"], tmp_path)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'images'")
    (one,) = client.search_runs([experiment.experiment_id])
    assert {metric.step for metric in client.get_metric_history(one.info.run_id, "loss")} == set(range(5))


def test_wandb_has_one_run_though_each_process_writes_a_folder(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    train(RECIPES["W&B"], tmp_path)
    folders = [path.name for path in (tmp_path / "wandb").glob("offline-run-*")]
    assert len(folders) == 2, "none of rank 1"
    assert all(name.endswith("-images-7") for name in folders)
