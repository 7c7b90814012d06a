"""The checkpoints of a script that has called `attach`: written whole or not at all."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.messages.ranks import NOT_SAVED, SECOND_TRAINING

if TYPE_CHECKING:
    from bftrainer.elastic.state.checkpoint import Checkpoints


class JobState:
    """State that a script saves and loads, in files of `state.checkpoint`. Imports torch when it is used.

    `folder` None: there is nothing to load, and nothing is saved. `generation` orders the files: a process of
    an earlier run that is still writing does not take the place of a later one's. `trainer` is that of
    `Checkpoints`.
    """

    def __init__(self, folder: Path | None, generation: int, trainer: str = "") -> None:
        self._folder, self._generation, self._trainer = folder, generation, trainer
        self._checkpoints: Checkpoints | None = None
        self._saved_at = time.monotonic()
        self._data: dict[str, str] = {}  # see `replicas.data`
        self.resumed: int | None = None
        """The step of the checkpoint that was loaded last."""

    @property
    def age_s(self) -> float:
        """Seconds since the last checkpoint of this process, or since its start."""
        return time.monotonic() - self._saved_at

    @property
    def error(self) -> str:
        """Reason why the last checkpoint could not be written; empty if it could."""
        return self._checkpoints.error if self._checkpoints is not None else ""

    def saved_now(self) -> None:
        """Note that a checkpoint has just been written, or has failed: restarts `age_s`."""
        self._saved_at = time.monotonic()

    def save(self, state: Mapping[str, Any], *, step: int, samples: int, epoch: int) -> bool:
        """Write a checkpoint, and return whether it is written.

        Raises:
            CheckpointError: the state cannot be read back.
        """
        from bftrainer.elastic.state.checkpoint import CheckpointError  # noqa: PLC0415

        self.saved_now()  # what cannot be written is not tried again in every step
        files = self._files()
        if files is None:
            return False
        position = {"step": step, "samples": samples, "epoch": epoch, "cursor": 0}
        snapshot = {"format": 1, "position": position, "parts": dict(state), "data": _shared_data(self._data)}
        written = files.save(snapshot, self._generation)
        if files.unreadable:
            raise CheckpointError(NOT_SAVED.say(why=files.error.splitlines()[0]))
        self.saved_now()
        return written

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read; None if there is no checkpoint.

        Raises:
            CheckpointError: there are checkpoints, but none can be read.
        """
        files = self._files()
        found = files.load() if files is not None else None
        if found is None:
            return None
        self._data = _shared_data(found.get("data", {}))
        self.resumed = found["position"]["step"]
        return dict(found["parts"])

    def _files(self) -> Checkpoints | None:
        if self._checkpoints is None and self._folder is not None:
            from bftrainer.elastic.state.checkpoint import Checkpoints  # noqa: PLC0415

            self._checkpoints = Checkpoints(str(self._folder), self._trainer)
        return self._checkpoints


def _shared_data(before: Mapping[str, str]) -> dict[str, str]:
    """Like `replicas.data`, which needs PyTorch: a job without a checkpoint does without."""
    from bftrainer.elastic.checks.replicas import data  # noqa: PLC0415

    return data(before)


_begun: weakref.WeakSet[Any] = weakref.WeakSet()


def begin_training(job: Any) -> None:
    """Note that the training of this process's job begins.

    Raises:
        RefusedError: one has begun before, for example of another fold.
    """
    if job in _begun:
        raise RefusedError(SECOND_TRAINING.say())
    _begun.add(job)
