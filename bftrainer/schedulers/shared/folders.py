"""Folders that schedulers need."""

from __future__ import annotations

from pathlib import Path

from bftrainer.errors import BftrainerError


def make_log_dir(folder: Path) -> None:
    """Make the folder in which pilots write what their agents print.

    Raises:
        BftrainerError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BftrainerError(f"pilot_log_dir {folder}: {error.strerror}; take another") from error
