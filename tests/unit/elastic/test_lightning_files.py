"""After a loss of nodes, a script's own ModelCheckpoint has the files that the run's checkpoint knows of."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bftrainer.elastic.attach import checkpoints
from bftrainer.elastic.attach.job import Job

pytest.importorskip("lightning")
pl = importlib.import_module("lightning.pytorch")
lightning = importlib.import_module("bftrainer.elastic.frameworks.lightning.callback")
STEPS = 5
"""Of an epoch."""


class Scored(pl.LightningModule):  # type: ignore[misc,name-defined]  # lightning need not be installed
    """Its validations have the scores that it is given; it is killed before a step, if that is given."""

    def __init__(self, scores: Sequence[float], killed_at: int | None) -> None:
        super().__init__()
        self.layer, self.scores, self.killed_at = torch.nn.Linear(1, 1), scores, killed_at

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Any loss."""
        if self.global_step == self.killed_at:
            raise ConnectionError("killed")
        loss: torch.Tensor = self.layer(batch.float()[:, None]).square().mean()
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        """The epoch's score."""
        self.log("score", self.scores[self.current_epoch])

    def val_dataloader(self) -> Any:
        """One batch."""
        return torch.utils.data.DataLoader(torch.ones(1, 1))

    def configure_optimizers(self) -> Any:
        """Any."""
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def process(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: Sequence[float],
    *,
    saves_at: Sequence[int] = (),
    killed_at: int | None = None,
    own: Path | None = None,
    **options: Any,
) -> Any:
    """Train to the end, or until the process is killed. Returns its ModelCheckpoint."""
    job = Job(None, folder)
    monkeypatch.setattr(Job, "checkpoint_every_s", 5.0)  # as under the daemon
    monkeypatch.setattr(Job, "folder", own or folder)
    monkeypatch.setattr(lightning, "attach", lambda _: job)
    monkeypatch.setattr(job, "listen_for_sigterm", lambda: None)
    due: list[bool] = []
    monkeypatch.setattr(job, "should_stop", lambda *, saves: due.append(saves))
    elastic = lightning.ElasticCallback(batch=4)
    options = {"monitor": "score", "filename": "{epoch}", **options}
    saving = pl.callbacks.ModelCheckpoint(dirpath=folder / "best", **options)
    trainer = pl.Trainer(
        **elastic.arguments(),
        callbacks=[elastic, saving],
        max_epochs=len(scores),
        num_sanity_val_steps=0,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    monkeypatch.setattr(job, "should_save", lambda: due[-1] or trainer.global_step in saves_at)
    loader = elastic.loader(range(4 * STEPS))
    try:
        trainer.fit(Scored(scores, killed_at), loader, ckpt_path=elastic.checkpoint)
    except ConnectionError:
        assert killed_at is not None
    return saving


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "best").glob("*.ckpt"))


def test_the_best_before_is_there_after_a_loss_and_that_of_the_lost_course_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, [5.0, 4.0, 3.0], saves_at=[7], killed_at=12)
    assert files(tmp_path) == ["epoch=0.ckpt", "epoch=1.ckpt"], (
        "the first is removed with the next checkpoint"
    )
    saving = process(tmp_path, monkeypatch, [5.0, 6.0, 7.0])
    assert Path(saving.best_model_path).name == "epoch=0.ckpt" and files(tmp_path) == ["epoch=0.ckpt"]


def test_what_is_to_be_removed_goes_with_the_next_checkpoint_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, [5.0, 4.0, 3.0], saves_at=[7, 11], killed_at=13)
    assert files(tmp_path) == ["epoch=1.ckpt"]
    process(tmp_path, monkeypatch, [5.0, 4.0, 3.0])
    assert files(tmp_path) == ["epoch=2.ckpt"]


def test_many_files_to_remove_make_a_checkpoint_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, [5.0, 4.0, 3.0, 2.0], killed_at=17)
    assert files(tmp_path) == ["epoch=2.ckpt"], "those of the epochs before went with it"


def test_a_fixed_name_has_the_newest_after_a_loss_before_the_first_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, [5.0, 4.0], killed_at=7, filename="best", save_last=True)
    assert files(tmp_path) == ["best.ckpt", "last.ckpt"]
    process(tmp_path, monkeypatch, [5.0, 4.0], filename="best", save_last=True)
    assert files(tmp_path) == ["best.ckpt", "last.ckpt"]
    last = torch.load(tmp_path / "best" / "last.ckpt", weights_only=False)
    assert last["global_step"] == 2 * STEPS


def test_a_trainer_that_goes_on_in_the_folder_of_another_keeps_it_as_tidy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    first, scores = tmp_path / "first", [5.0, 4.0, 3.0]
    process(first, monkeypatch, scores, saves_at=[7], killed_at=12)
    saving = process(first, monkeypatch, [5.0, 6.0, 7.0], own=tmp_path / "second")
    assert Path(saving.best_model_path).name == "epoch=0.ckpt" and files(first) == ["epoch=0.ckpt"]


def test_a_folder_of_checkpoints_that_has_none_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    given = tmp_path / "given"
    (given / "best").mkdir(parents=True)
    (given / "best" / "theirs.ckpt").touch()
    process(given, monkeypatch, [5.0], own=tmp_path / "own")
    assert files(given) == ["epoch=0.ckpt", "theirs.ckpt"]


def test_files_elsewhere_and_all_without_a_note_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere" / "theirs.ckpt"
    other.parent.mkdir()
    other.touch()
    monkeypatch.setattr(Job, "checkpoint_every_s", 5.0)
    monkeypatch.setattr(Job, "folder", tmp_path / "own")
    elastic_files = importlib.import_module("bftrainer.elastic.frameworks.lightning.files")
    kept = elastic_files.CheckpointFiles(Job(None, tmp_path / "own"))
    trainer = type("T", (), {})()
    trainer.strategy = type("S", (), {"remove_checkpoint": lambda self, path: Path(path).unlink()})()
    trainer.checkpoint_callbacks = [type("C", (), {"dirpath": str(other.parent)})()]
    kept.begin(trainer)
    assert other.exists()
    kept.resume(None)
    inside = tmp_path / "own" / "best" / "x.ckpt"
    inside.parent.mkdir(parents=True)
    inside.touch()
    trainer.checkpoint_callbacks = [type("C", (), {"dirpath": str(inside.parent)})()]
    kept.begin(trainer)
    assert inside.exists()
