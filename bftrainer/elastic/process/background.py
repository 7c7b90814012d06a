"""Starts threads, and counts their calls of PyTorch, so that the interpreter does not end amid one.

A thread that comes back from PyTorch's C++ while the interpreter ends is ended there, and C++ then aborts the
whole process ("terminate called without an active exception"): a training that is done would count as failed.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

MOST_S = 5.0
"""Seconds to wait at exit for calls under way. A call to a peer that is gone may never return, which
does no harm."""
_changed = threading.Condition()
_under_way = 0
_is_over = False


def start(work: Callable[[], object], name: str) -> threading.Thread:
    """A thread that does `work`, for which the interpreter does not wait. It never begins where the
    interpreter ends: there no thread could start any more, and the system closes what is open."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    if not sys.is_finalizing():
        thread.start()
    return thread


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """Around a call of PyTorch in such a thread. Once the script is over it never begins."""
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
