"""Files of a script's ModelCheckpoints: after a loss of nodes, those that the run's checkpoint knows of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.elastic.attach import step_files
from bftrainer.elastic.attach.job import Job

MANY = 2
"""Files to remove that make a checkpoint due."""


class CheckpointFiles:
    """Keeps what ModelCheckpoints remove until the run's next checkpoint is whole, as an older one still
    names it; and removes what they have written since the checkpoint from which a run goes on.

    The latter only in the trainer's own folder, and in that of its checkpoints, which may be an earlier
    trainer's: elsewhere, files may be another's. So may they in the latter before the run goes on from a
    checkpoint.
    """

    def __init__(self, job: Job) -> None:
        self._job, self._folder = job, Path(job.folder).resolve()
        self._checkpoints = Path(job.checkpoint_dir).resolve() if job.checkpoint_dir else None
        self._removed: list[str] = []
        self._known: Mapping[str, list[str]] | None = {}
        self._strategy: Any = None

    def is_own(self, folder: Path) -> bool:
        """True if files in this folder are the trainer's."""
        return any(folder.is_relative_to(each) for each in (self._folder, self._checkpoints) if each)

    @property
    def are_many(self) -> bool:
        """True if the run should save, so that files can be removed; the same on all ranks."""
        return len(self._removed) >= MANY

    def resume(self, known: Mapping[str, list[str]] | None) -> None:
        """Take over a checkpoint's note; None: it has none, as a former version has written it."""
        self._known = known

    def begin(self, trainer: Any) -> None:
        """The training begins: remove files of a course that a loss of nodes has ended."""
        self._strategy = trainer.strategy
        self._strategy.remove_checkpoint = lambda path: self._removed.append(str(path))
        if self._job.rank == 0 and math.isfinite(self._job.checkpoint_every_s) and self._known is not None:
            for folder in self._folders(trainer):
                anew: list[str] | None = [] if folder.is_relative_to(self._folder) else None
                known = self._known.get(str(folder)) if self._known else anew
                for path in _files(folder):
                    if known is not None and str(path.relative_to(folder)) not in known:
                        path.unlink(missing_ok=True)

    def noted(self, trainer: Any) -> dict[str, list[str]]:
        """For a checkpoint: the present files by folder, without those to be removed."""
        return {
            str(folder): [
                str(path.relative_to(folder)) for path in _files(folder) if str(path) not in self._removed
            ]
            for folder in self._folders(trainer)
        }

    def saved(self, trainer: Any) -> None:
        """The run's checkpoint is whole."""
        used = {path for each in trainer.checkpoint_callbacks for path in _used(each)}
        removed, self._removed[:] = [path for path in self._removed if str(path) not in used], []
        for path in removed:
            type(self._strategy).remove_checkpoint(self._strategy, path)

    def end(self, trainer: Any) -> None:
        """The training is over."""
        if self._strategy is not None:
            self.saved(trainer)
            vars(self._strategy).pop("remove_checkpoint", None)

    def _folders(self, trainer: Any) -> list[Path]:
        found = {
            Path(each.dirpath) for each in trainer.checkpoint_callbacks if getattr(each, "dirpath", None)
        }
        return [folder for folder in sorted(found) if self.is_own(folder)]


def _files(folder: Path) -> list[Path]:
    """Its checkpoints, in folders within it, too, but for the run's own."""
    return [path for path in folder.rglob("*.ckpt") if not step_files.is_own(path)]


def _used(checkpoint: Any) -> set[str]:
    names = (getattr(checkpoint, name, "") for name in ("best_model_path", "last_model_path"))
    return {str(path) for path in (*names, *getattr(checkpoint, "best_k_models", {}))}
