"""Warnings to a script: in its log, and with its reports for `bftrainer show`."""

from __future__ import annotations

import sys
import warnings
from datetime import datetime
from types import FrameType

LIBRARIES = ("bftrainer", "torch")
KEEP = 3
LONGEST = 500
"""Characters of a warning in a report, at most; the log has all of it."""
ENDING = 30
"""Characters to keep of a longer one's end, which has the id."""

_last: list[str] = []  # of this process, the latest last


def warn(text: str) -> None:
    """Warn as `warnings.warn` does, at the script's line that has led here."""
    _, level = script_frame()
    warnings.warn(text, stacklevel=level)
    _keep(text)


def note_warning(text: str) -> None:
    """Warn with a line of the log, as `note` does."""
    note(text)
    _keep(text)


def take_back(text: str) -> None:
    """Forget a warning that has turned out to be none."""
    if (cut := _cut(text)) in _last:
        _last.remove(cut)
        note(f"taken back: {cut}")


def last() -> list[str]:
    """The last `KEEP` warnings of this process, each once."""
    return list(_last)


def script_frame() -> tuple[FrameType | None, int]:
    """The innermost frame of the script, and its `stacklevel` seen from the caller: of what is neither this
    library nor PyTorch. None and 1 if there is none."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and is_of_a_library(frame):
        frame, level = frame.f_back, level + 1
    return (frame, level) if frame is not None else (None, 1)


def is_of_a_library(frame: FrameType) -> bool:
    """True if a frame runs code of this library or of PyTorch."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES


def _keep(text: str) -> None:
    cut = _cut(text)
    if cut in _last:
        _last.remove(cut)
    _last.append(cut)
    del _last[:-KEEP]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3 - ENDING]}...{text[-ENDING:]}"


def note(text: str) -> None:
    """Print a line on standard error, which the worker's log has: "2026-01-31 12:00:00 bftrainer: ..."."""
    moment = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    print(f"{moment} bftrainer: {text}", file=sys.stderr, flush=True)


def begun(step: int) -> str:
    """Note for a training that begins, at a step of a checkpoint or at 0."""
    return f"resumed from step {step}" if step else "begins anew: there is no checkpoint"
