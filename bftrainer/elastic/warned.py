"""What a script is warned of: in its log, and with its reports, for `bftrainer show`."""

from __future__ import annotations

import warnings

from bftrainer.elastic.note import note

KEEP = 3
LONGEST = 500
"""A warning in a report has at most so many characters; the log has all of it."""

_last: list[str] = []  # of this process, the latest last


def warn(text: str, *, stacklevel: int = 1) -> None:
    """Warn as `warnings.warn` does, with its `stacklevel`."""
    warnings.warn(text, stacklevel=stacklevel + 1)
    _keep(text)


def note_warning(text: str) -> None:
    """Warn with a line of the log, as `note` does."""
    note(text)
    _keep(text)


def last() -> list[str]:
    """The last `KEEP` warnings of this process, each once."""
    return list(_last)


def _keep(text: str) -> None:
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    if cut in _last:
        _last.remove(cut)
    _last.append(cut)
    del _last[:-KEEP]
