"""Counts calls of PyTorch in other threads than the script's, so that the interpreter does not end amid one.

A thread that comes back from PyTorch's C++ while the interpreter ends is ended there, and C++ then aborts the
whole process ("terminate called without an active exception"): a training that is done would count as failed.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Iterator

MOST_S = 5.0
"""The interpreter waits so long for calls under way. One whose peer is gone may never come back: that does no
harm."""
_changed = threading.Condition()
_under_way = 0
_is_over = False


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """Around a call of PyTorch in a thread that the interpreter does not wait for. Once the script is over
    such a call never begins."""
    global _under_way  # noqa: PLW0603  the process has one interpreter
    with _changed:
        _changed.wait_for(lambda: not _is_over)
        _under_way += 1
    try:
        yield
    finally:
        with _changed:
            _under_way -= 1
            _changed.notify_all()


@atexit.register
def _end() -> None:
    global _is_over  # noqa: PLW0603
    with _changed:
        _is_over = True
        _changed.wait_for(lambda: not _under_way, MOST_S)
