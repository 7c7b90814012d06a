"""What `submit` says of a script that leaves the training to a framework, without bftrainer's callback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bftrainer.cli.shared.script_hints import hint
from bftrainer.model.trainer import TrainerSpec

HF = "from transformers import Trainer, TrainingArguments\n"
OURS = "from bftrainer.elastic.huggingface import ElasticCallback\n"


def told(folder: Path, text: str, **changed: Any) -> str:
    (folder / "train.py").write_text(text)
    about = {"command": ("python", "train.py"), "launcher": "torchrun", "n_min": 1, "n_max": 3, **changed}
    return hint(TrainerSpec(name="t", workdir=str(folder), **about))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (HF, "elastic.huggingface.ElasticCallback"),
        ("from trl import SFTTrainer\n", "epochs are counted wrongly"),
        ("import lightning as L\n", "elastic.lightning.ElasticCallback"),
        ("from pytorch_lightning import Trainer\n", "not at the sample"),
        (OURS + HF, ""),
        (HF + "if True:\n    " + OURS, ""),
        ("from transformers import AutoModel\n", ""),
        ("from lightning.fabric import Fabric\n", ""),
        ("import torch\n", ""),
        ("this is no Python", ""),
    ],
)
def test_a_framework_without_the_callback_is_told_of(text: str, named: str, tmp_path: Path) -> None:
    found = told(tmp_path, text)
    assert named in found and bool(found) == bool(named)


@pytest.mark.parametrize(
    ("text", "changed", "is_told"),
    [
        ("import torch\n", {}, True),
        ("import torch\n", {"n_max": 1}, False),
        ("from bftrainer import elastic\n", {}, False),
        ("import torch\nif True:\n    import bftrainer.elastic\n", {}, False),
        ("import torch\nif True:\n    from bftrainer import elastic\n", {}, False),
        ("import torch  # not for bftrainer.elastic\n", {}, True),
        ("this is no Python", {}, False),
    ],
)
def test_a_native_script_that_uses_nothing_of_the_library_is_told_of(
    text: str, changed: dict[str, Any], is_told: bool, tmp_path: Path
) -> None:
    found = told(tmp_path, text, launcher="native", **changed)
    assert ("each would train by itself" in found) == is_told == bool(found)


@pytest.mark.parametrize(
    ("text", "samples", "is_told"),
    [
        ("import torch\n", 1000, True),
        ("import torch\n", None, False),
        ("import bftrainer.elastic\n", 1000, False),
    ],
)
def test_a_script_on_torchrun_that_tells_of_no_samples_is_told_of_where_the_spec_asks_for_some(
    text: str, samples: int | None, is_told: bool, tmp_path: Path
) -> None:
    assert ("Say `work: until_exit`" in told(tmp_path, text, samples=samples)) == is_told


def test_the_callback_may_be_in_a_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(OURS)
    assert not told(tmp_path, HF + "import parts\n")


@pytest.mark.parametrize(
    "changed",
    [
        {"n_max": 1},
        {"launcher": "horovod"},
        {"command": ("python", "-m", "train")},
        {"command": ("python", "no.py")},
    ],
)
def test_nothing_is_said_where_nothing_is_known_or_lost(changed: dict[str, Any], tmp_path: Path) -> None:
    assert told(tmp_path, HF, **changed) == ""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("exec torchrun --nproc-per-node 1 train.py", "torchrun"),
        ("source /opt/env; accelerate launch train.py", "accelerate"),
        ("# torchrun was here\nexec python train.py torchrun", ""),
        ("echo 'open", ""),
    ],
)
def test_a_shell_script_that_starts_processes_of_its_own_is_told_of(
    tmp_path: Path, line: str, named: str
) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\nset -e\n{line}\n")
    for command in (("bash", "run.sh"), ("./run.sh", "--lr", "1"), ("env", "A=1", "bash", "run.sh")):
        found = hint(TrainerSpec(name="t", command=command, workdir=str(tmp_path), n_min=1, n_max=2))
        assert (f"run.sh calls {named}" in found) if named else found == ""
    missing = TrainerSpec(name="t", command=("bash", "missing.sh"), workdir=str(tmp_path), n_min=1, n_max=2)
    assert hint(missing) == ""


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["train.py", "train.sh"])
def test_a_pipe_in_place_of_a_script_is_not_waited_for(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    assert (
        hint(TrainerSpec(name="t", workdir=str(tmp_path), command=("python", name), n_min=1, n_max=3)) == ""
    )
