"""Checkpoints of Hugging Face's Trainer, folders that several ranks write: which are whole, and whose."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.elastic.state.checkpoint import write_json
from bftrainer.files import read_text

WHOLE = "bftrainer-whole.json"
"""A file in every checkpoint that all ranks have written in full."""
OTHERS = ".bftrainer-others.json"
"""A file beside them: which were there before this trainer began, without that mark."""
KEEP = 2
MOST_KB = 10_000


def mark(folder: Path, noted: Mapping[str, Any]) -> None:
    """Mark a checkpoint as whole, and note this in it."""
    write_json(folder / WHOLE, noted)


def mark_of(folder: Path) -> Mapping[str, Any]:
    """Note in a checkpoint that is whole."""
    found: dict[str, Any] = json.loads(read_text(folder / WHOLE, MOST_KB))
    return found


def newest(folder: Path) -> str | None:
    """The newest whole checkpoint."""
    found = _whole(folder)
    return str(found[-1]) if found else None


def tidy(folder: Path, trainer: str) -> None:
    """Remove the checkpoints that killed processes of a trainer have left incomplete. Those that were there
    before it began may be whole, and of a training without this callback: they stay."""
    halves, others = _halves(folder), _others(folder, trainer)
    if others is None:
        with contextlib.suppress(OSError):  # on a full disk nothing is removed at the next start either
            write_json(folder / OTHERS, {"trainer": trainer, "names": sorted(halves)})
        return
    for name in halves - others:
        shutil.rmtree(folder / name, ignore_errors=True)


def prune(folder: Path, best: str | None) -> None:
    """Remove older checkpoints that the callback has asked for. The Trainer sees to its own."""
    ours = [path for path in _whole(folder) if mark_of(path)["ours"]]
    for path in ours[:-KEEP]:
        if best is None or Path(best).name != path.name:
            (path / WHOLE).unlink(missing_ok=True)  # first: what is half removed is not whole
            shutil.rmtree(path, ignore_errors=True)


def _whole(folder: Path) -> list[Path]:
    """The checkpoints that all ranks have written in full, the newest last."""
    found = [path.parent for path in folder.glob(f"checkpoint-*/{WHOLE}")]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def _halves(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("checkpoint-*")} - {path.name for path in _whole(folder)}


def _others(folder: Path, trainer: str) -> set[str] | None:
    """Files from before this trainer began; None if it begins now."""
    try:
        said = json.loads(read_text(folder / OTHERS, MOST_KB))
        return set(said["names"]) if said["trainer"] == trainer else None
    except (OSError, ValueError, KeyError, TypeError):  # none, or not written by the library
        return None
