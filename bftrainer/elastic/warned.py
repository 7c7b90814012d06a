"""What a script is warned of: in its log, and with its reports, for `bftrainer show`."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from bftrainer.elastic.note import note

LIBRARIES = ("bftrainer", "torch")
KEEP = 3
LONGEST = 500
"""A warning in a report has at most so many characters; the log has all of it."""

_last: list[str] = []  # of this process, the latest last


def warn(text: str) -> None:
    """Warn as `warnings.warn` does, at the script's line that has led here."""
    warnings.warn(text, stacklevel=_to_script())
    _keep(text)


def note_warning(text: str) -> None:
    """Warn with a line of the log, as `note` does."""
    note(text)
    _keep(text)


def last() -> list[str]:
    """The last `KEEP` warnings of this process, each once."""
    return list(_last)


def _to_script() -> int:
    """The `stacklevel` of the script, seen from `warn`: of what is neither this library nor PyTorch."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_of_a_library(frame):
        frame, level = frame.f_back, level + 1
    return level if frame is not None else 1


def _is_of_a_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in LIBRARIES


def _keep(text: str) -> None:
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    if cut in _last:
        _last.remove(cut)
    _last.append(cut)
    del _last[:-KEEP]
