"""A progress bar on a terminal, on standard error, and silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[..., None]
"""Takes the share that is done, 0 to 1, and, if that changes, what to say of it."""


@contextmanager
def bar(label: str, *, shown: bool = True) -> Iterator[Advance]:
    """Show how far something is."""
    if not (shown and sys.stderr.isatty()):
        yield lambda done, label=None: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=1.0)
        yield lambda done, label=None: progress.update(task, completed=done, description=label)
