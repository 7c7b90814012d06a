"""A trial's spec as a trainer of its own runs the very same command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bftrainer.search.files.parse import parse as parse_study
from bftrainer.search.fill import trainer_of
from bftrainer.search.resubmit import again
from bftrainer.spec.parse import parse

STUDY: dict[str, Any] = {
    "name": "digits",
    "trainer": {
        "command": ["python", "t.py", "--lr", "{lr}", "--momentum", "{momentum}", "--seed", "{seed}"],
        "workdir": "scripts",
        "nodes": {"min": 2, "max": 4},
        "env": {"TRIAL": "{trial}", "ALL": "{params}", "M": "{momentum}"},
        "checkpoint": {"every_s": 9},
        "curve": [[1, 100], [4, 300]],
    },
    "space": {
        "optimizer": {"choice": ["sgd", "adam"]},
        "lr": {"float": [0.001, 1.0], "log": True},
        "momentum": {"float": [0.0, 0.99], "when": {"optimizer": "sgd"}},
    },
    "metric": "loss",
    "trials": 8,
    "budget": 800,
    "weight": 0.5,
    "seed": 3,
}


@pytest.mark.parametrize(
    "params",
    [{"optimizer": "sgd", "lr": 0.1 + 0.2, "momentum": 1 / 3}, {"optimizer": "adam", "lr": 1e-3}],
)
@pytest.mark.parametrize("folder", [None, "ckpt"])
def test_a_trial_again_is_the_trainer_that_it_was(params: dict[str, Any], folder: str | None) -> None:
    own = {**STUDY, "trainer": dict(STUDY["trainer"])}
    if folder:
        own["trainer"]["checkpoint"] = {"every_s": 9, "dir": folder}
    text = yaml.safe_dump(own, sort_keys=False)
    study = parse_study(text, "study", Path("/work"))
    was = trainer_of(study, 5, params, run=2, samples=400, checkpoint_dir="")
    spec = parse(yaml.safe_dump(again(text, "/work", 5, params, 400)), "again", Path("/elsewhere"))
    assert spec.name == "digits.5.again"
    assert spec.checkpoint_dir == (f"/work/{folder}/digits.5.again" if folder else "")
    assert replace(spec, name=was.name, checkpoint_dir="") == was
