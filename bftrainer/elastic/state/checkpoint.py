"""Checkpoints: atomic, pruned, plain `torch.save` dictionaries.

A file `g<generation>-s<step>.pt` holds {"format", "position", "parts": {"model": ..., "optimizer":
...}}, loadable with `torch.load(path, weights_only=True)` and without bftrainer. The newest is the
one with the highest generation, then step: a stray worker of an older generation cannot replace it.
A trainer that goes on in the folder of another counts generations on: a file there says from where.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from bftrainer.files import held, is_among, read_text
from bftrainer.messages.state import CHECKPOINT_FAILS, CHECKPOINTS_UNREADABLE, EARLIER_CHECKPOINT

log = logging.getLogger(__name__)

KEEP = 2
TRAINER = ".trainer.json"
"""Says whose a folder is now, and the highest generation that was there before it."""
MOST_KB = 4
"""Size of its file, at most: others may have put something else there, where they may write."""
_NAME = re.compile(r"g(\d+)-s(\d+)\.pt")


class CheckpointError(RuntimeError):
    """There are checkpoints, but none of them can be read."""


class Checkpoints:
    """The checkpoints of one trainer in one directory. `error` says why the last could not be written, or is
    empty; `unreadable`: because of what it holds.

    `trainer` tells it from all others, which may have used the directory before; empty: started by hand.
    """

    def __init__(self, directory: str, trainer: str = "") -> None:
        self._directory, self._trainer = Path(directory), trainer
        self._is_own = is_among(directory, trainer)
        self._base: int | None = None  # of this trainer's generations; None: not known yet
        self._proven = False
        self.error = ""
        self.unreadable = False

    def save(self, snapshot: dict[str, Any], generation: int) -> bool:
        """Write `snapshot` now: to a temporary file, which is flushed and then renamed.

        Returns whether it was written. If not, for example on a full disk, `error` says why, and training
        goes on.
        """
        step = snapshot["position"]["step"]
        name = f"s{step:012}.pt"
        try:
            name = self.name_of(step, generation)
            with held(self._directory, own=self._is_own) as folder:
                self._write(snapshot, folder, name)
            self.error = ""
        except (OSError, RuntimeError, pickle.PickleError) as error:  # torch: a full disk is a RuntimeError
            self.error = f"checkpoint {self._directory / name}: {error}"
            self.unreadable = isinstance(error, pickle.PickleError)
            log.error("%s", CHECKPOINT_FAILS.ends(self.error))
            return False
        return True

    def _write(self, snapshot: dict[str, Any], folder: Path, name: str) -> None:
        partial = folder / f".{name}.{os.getpid()}"
        try:
            with new_file(partial) as file:
                torch.save(snapshot, file)
                file.flush()
                os.fsync(file.fileno())
            if not self._proven:  # once: check that what this run saves can be read back
                torch.load(partial, map_location="cpu", weights_only=True)
                self._proven = True
            partial.replace(folder / name)
            for path in _found(folder)[KEEP:]:
                path.unlink(missing_ok=True)
        finally:
            with contextlib.suppress(OSError):  # a file that cannot be written may not be removable either
                partial.unlink(missing_ok=True)

    def name_of(self, step: int, generation: int) -> str:
        """The name of a checkpoint in the directory, which is this trainer's from now on.

        Raises:
            OSError: the directory cannot be written.
        """
        return f"g{self._take_over() + generation:08}-s{step:012}.pt"

    def load(self) -> dict[str, Any] | None:
        """The newest readable checkpoint, on the CPU; None if there is none. Removes files that a crash left
        incomplete.

        Raises:
            CheckpointError: there are checkpoints, but none can be read. Starting over would lose the work
            silently.
        """
        if not self._directory.is_dir():
            return None
        with held(self._directory, own=self._is_own) as folder:
            for path in folder.glob(".g*-s*.pt.*"):
                path.unlink(missing_ok=True)
            found = _found(folder)
            if found:
                with contextlib.suppress(OSError):  # to read is enough; who saves is told
                    self._take_over()
            return self._newest_of(found)

    def _newest_of(self, found: list[Path]) -> dict[str, Any] | None:
        reason = ""
        for path in found:
            try:
                snapshot: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
                if snapshot["format"] == 1:
                    return snapshot
            except (OSError, RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
                where = self._directory / path.name
                log.error("%s", EARLIER_CHECKPOINT.say(path=where, why=repr(error)))
                reason = str(error) or type(error).__name__  # an empty file: EOFError without a text
        if reason:
            raise CheckpointError(
                CHECKPOINTS_UNREADABLE.say(folder=self._directory, why=reason.splitlines()[0])
            )
        return None

    def _take_over(self) -> int:
        """Make the directory this trainer's, once, and return what its generations are counted from: those of
        trainers before it are lower, however often their members changed.

        Raises:
            OSError: the directory cannot be written.
        """
        if self._base is None:
            with held(self._directory, own=self._is_own) as folder:
                self._base = self._base_in(folder)
        return self._base

    def _base_in(self, folder: Path) -> int:
        mark = folder / TRAINER
        base = _base_of(mark, self._trainer)
        if base is None:
            base = max((_numbers(path)[0] for path in _found(folder)), default=0)
            write_json(mark, {"trainer": self._trainer, "base": base})
        return base


def new_file(path: Path) -> BinaryIO:
    """Open a file for writing that is new, in place of one that was there: others may write to a folder that
    a spec names, too, and put links to any file of this user there.

    Raises:
        OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)
    return path.open("xb")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file as a whole, through one that is new, see `new_file`.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with new_file(partial) as file:
        file.write(json.dumps(value).encode())
    partial.replace(path)


def _found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    named = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file()]  # no pipe
    return sorted(named, key=_numbers, reverse=True)


def _numbers(path: Path) -> tuple[int, int]:
    """The generation and the step in a checkpoint's name."""
    found = _NAME.fullmatch(path.name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _base_of(mark: Path, trainer: str) -> int | None:
    """Offset of a trainer's generations in its own directory; None if it is not its own."""
    try:
        said = json.loads(read_text(mark, MOST_KB))
        return int(said["base"]) if said["trainer"] == trainer else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # none, or not written by the library
        return None
