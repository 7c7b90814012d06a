"""A folder of checkpoints, one file or folder for a step, of which only whole ones have their final name."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.files import strangers_in
from bftrainer.messages.ranks import STRANGERS_CHECKPOINTS

KEEP = 2
PARTIAL = ".partial.ckpt"
_NAME = re.compile(r"step-(\d+)\.ckpt")


def check_no_strangers(folder: Path) -> None:
    """Raise `RefusedError` if strangers can put files into a folder of checkpoints. For libraries that read
    and write there by names; `state.checkpoint` looks at what it opens."""
    if why := strangers_in(folder):
        raise RefusedError(STRANGERS_CHECKPOINTS.say(folder=folder, why=why))


def whole(folder: Path) -> list[Path]:
    """The checkpoints that are whole, the newest last."""
    return sorted(path for path in folder.glob("step-*.ckpt") if _NAME.fullmatch(path.name))


def is_own(path: Path) -> bool:
    """True if a file has the name of one of these, whole or not."""
    return bool(_NAME.fullmatch(path.name)) or path.name.endswith(PARTIAL)


def step_of(checkpoint: str | None) -> int:
    """The step at which a checkpoint was written; 0 where there is none, or it has another name."""
    found = _NAME.fullmatch(Path(checkpoint).name) if checkpoint else None
    return int(found[1]) if found else 0


def tidy(folder: Path) -> None:
    """Remove checkpoints that a killed process has left incomplete."""
    for path in folder.glob(f"*{PARTIAL}"):
        _remove(path)


def partial(folder: Path, step: int) -> Path:
    """Path to which the checkpoint of a step is written."""
    return folder / f"step-{step:012}{PARTIAL}"


def finish(folder: Path, step: int) -> None:
    """The checkpoint of a step is whole: give it its name, and remove all but the newest `KEEP`."""
    partial(folder, step).replace(folder / f"step-{step:012}.ckpt")
    for path in whole(folder)[:-KEEP]:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():  # of a strategy whose ranks each write a part
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
