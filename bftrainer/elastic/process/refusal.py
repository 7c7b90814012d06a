"""Refusals: errors of a script that every start would come to again.

A script whose process fails is tried again, as a node or a file system may be the cause. What is refused is
the script's own, so the trainer fails with the reason as soon as the error ends the script. A script that
catches the error decides by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType


class RefusedError(ValueError):
    """The script's request would go wrong on nodes that come and go: the message says why, and the
    remedy."""


_tell: Callable[[str], None] | None = None


def tell_of_refusals(tell: Callable[[str], None]) -> None:
    """Call `tell`, from now on, with the message of a refusal that ends this process, before it is printed.
    The last call counts."""
    global _tell  # noqa: PLW0603  a process has one script
    if _tell is None:
        sys.excepthook = partial(_told, sys.excepthook)
    _tell = tell


def _told(
    before: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    if isinstance(error, RefusedError) and _tell is not None:
        _tell(str(error))
    before(kind, error, trace)
