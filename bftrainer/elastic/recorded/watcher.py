"""The place for a watcher of this process, such as the recorder of a rehearsal; usually nobody watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Watcher(Protocol):
    """Watches what the library does for a script, and changes nothing."""

    def enters(self, run: Any) -> None:
        """An `elastic.Run` of this process begins."""

    def observers(self, trained: Any) -> Sequence[Any]:
        """Further observers (`loop.observers.StepObserver`) of a run that trains these models."""

    def said(self, kind: str, fields: Mapping[str, Any]) -> None:
        """The process tells its agent, or would if it had one, a message of this kind."""


class Nobody:
    """Watches nothing."""

    def enters(self, run: Any) -> None:
        """See `Watcher.enters`."""

    def observers(self, trained: Any) -> Sequence[Any]:
        """See `Watcher.observers`."""
        return ()

    def said(self, kind: str, fields: Mapping[str, Any]) -> None:
        """See `Watcher.said`."""


watching: Watcher = Nobody()
"""Watcher of this process. The recorder sets itself here."""
