"""The register of the daemon's present troubles, which status, probes and metrics read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from bftrainer.messages.commands.troubles import (
    AGENTS,
    ALLOCATOR,
    ANSWERS,
    CLOCK,
    CONNECTIONS,
    DESCRIPTORS,
    DISK,
    ENGINE,
    NODES,
    PILOTS,
    QUEUE,
    READS,
    SCHEDULER,
    STORE,
    STUDIES,
)
from bftrainer.messages.diagnostic import Diagnostic

Part = Literal[
    "engine",
    "scheduler",
    "nodes",
    "queue",
    "store",
    "disk",
    "clock",
    "reads",
    "connections",
    "pilots",
    "agents",
    "solver",
    "allocator",
    "descriptors",
    "studies",  # in this order
]
DECIDES_ALL_THE_SAME = frozenset(
    {"queue", "clock", "agents", "solver", "allocator", "descriptors", "studies"}
)
"""The parts without which the daemon still works: another allocator makes the plans, other
agents go on, main jobs that it sees get their nodes, fewer connections are served, and the daemon's own clock
goes on."""
TOLD_BY: Mapping[Part, Diagnostic] = MappingProxyType(
    {
        "engine": ENGINE,
        "scheduler": SCHEDULER,
        "nodes": NODES,
        "queue": QUEUE,
        "store": STORE,
        "disk": DISK,
        "clock": CLOCK,
        "reads": READS,
        "connections": CONNECTIONS,
        "pilots": PILOTS,
        "agents": AGENTS,
        "solver": ANSWERS,
        "allocator": ALLOCATOR,
        "descriptors": DESCRIPTORS,
        "studies": STUDIES,
    }
)
"""The message about each part."""
PASSES_S = 60.0
"""Seconds after which a single incident is over."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A part's failure. `detail` may name users, and is for admins only."""

    reason: str
    detail: str = ""

    @property
    def text(self) -> str:
        """Reason and detail in one line."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


@dataclass(frozen=True, slots=True)
class _Noted:
    """A trouble in the register: how often it has happened, and when it ends by itself."""

    trouble: Trouble
    until: float = float("inf")
    times: int = 1

    def text(self, *, detail: bool) -> str:
        """The trouble in words, and how often if more than once."""
        said = self.trouble.text if detail else self.trouble.reason
        return f"{said} ({self.times:,} times)" if self.times > 1 else said


class Troubles:
    """The parts that do not work, each with its reason. Safe to use from several threads.

    `ended` is called with each part whose trouble has ended by itself.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, ended: Callable[[Part], None] = lambda part: None
    ) -> None:
        self._clock, self._ended = clock, ended
        self._by_part: dict[Part, _Noted] = {}
        self._lock = threading.Lock()

    def set(self, part: Part, trouble: Trouble | None) -> bool:
        """Note a part's state; None: it works. Returns whether it worked before and does not now, or the
        reverse."""
        with self._lock:
            before = self._by_part.pop(part, None)
            if trouble is not None:
                self._by_part[part] = _Noted(trouble)
        return (before is None) != (trouble is None)

    def happened(self, part: Part, trouble: Trouble, seconds: float = PASSES_S) -> bool:
        """Note what has just happened: the part works again if it does not happen once more within `seconds`.

        Returns whether the part worked before. A lasting trouble of the part stays.
        """
        self._end_those_that_are_over()
        with self._lock:
            before = self._by_part.get(part)
            if before is None or before.until < float("inf"):
                times = 1 if before is None else before.times + 1
                self._by_part[part] = _Noted(trouble, self._clock() + seconds, times)
        return before is None

    def has(self, part: Part) -> bool:
        """True if a part does not work."""
        self._end_those_that_are_over()
        return part in self._by_part

    def texts(self, *, details: bool, blocking: bool | None = None) -> list[str]:
        """All troubles, in a fixed order of the parts; with `details` as admins may read it. With `blocking`
        only those that keep the daemon from its work; False: only the others."""
        return [*self._by_parts(details=details, blocking=blocking).values()]

    def messages(self, *, details: bool) -> list[str]:
        """All of `texts`, each with the id of its part's message."""
        return [TOLD_BY[part].ends(text) for part, text in self._by_parts(details=details).items()]

    def _by_parts(self, *, details: bool, blocking: bool | None = None) -> dict[Part, str]:
        self._end_those_that_are_over()
        noted = self._by_part.copy()
        parts = [
            part
            for part in get_args(Part)
            if part in noted and (blocking is None or blocking == (part not in DECIDES_ALL_THE_SAME))
        ]
        return {part: noted[part].text(detail=details) for part in parts}

    def _end_those_that_are_over(self) -> None:
        now = self._clock()
        with self._lock:
            over = [part for part, noted in self._by_part.items() if noted.until <= now]
            for part in over:
                del self._by_part[part]
        for part in over:
            self._ended(part)
