"""A progress bar on a terminal, on standard error, and silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Reports the progress of a task."""

    def __call__(self, done: float, what: str | None = None, /) -> None:
        """Show that the share `done`, 0 to 1, is done; `what` replaces the text beside the bar."""


@contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[Advance]:
    """Yield a function to report progress with; a bar appears if `shown` and standard error is a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda done, what=None: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda done, what=None: bar.update(task, completed=done, description=what)
