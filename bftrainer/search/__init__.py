"""Studies: searches over hyper-parameters whose trials are trainers. `Study` submits and follows one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrainer.search.python import Study as Study


def __getattr__(name: str) -> Any:
    """Import `Study` when it is asked for: the daemon needs no client of itself."""
    if name == "Study":
        from bftrainer.search.python import Study  # noqa: PLC0415

        return Study
    raise AttributeError(name)
