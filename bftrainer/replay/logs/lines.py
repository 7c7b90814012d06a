"""The lines of a log, those that cannot be understood counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar

from bftrainer.replay.intervals import Interval

T = TypeVar("T")

EXAMPLES = 3
SHOWN = 120
MOST_NODES = 1_000_000


class BrokenLine(ValueError):
    """A line that is not what its format promises; the message says what is wrong with it."""


@dataclass
class Lines:
    """Iterates over the lines that are not blank and remembers which of them were refused."""

    source: Iterable[str]
    number: int = 0
    seen: int = 0
    broken: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[str]:
        for self.number, raw in enumerate(self.source, start=self.number + 1):
            text = raw.rstrip()
            if text:
                self.seen += 1
                yield text

    def refuse(self, why: object) -> None:
        """The line read last is broken."""
        self.broken += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((self.number, str(why)))

    def each(self, parse: Callable[[str], T | None]) -> Iterator[T]:
        """What `parse` makes of each line; None and refused lines are left out."""
        for text in self:
            try:
                found = parse(text)
            except BrokenLine as error:
                self.refuse(error)
            else:
                if found is not None:
                    yield found


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader got out of a log. Times in Unix seconds; an open interval ends at infinity."""

    intervals: Iterable[Interval]
    nodes: frozenset[str]
    begin: float
    end: float
    notes: tuple[str, ...] = ()


def shown(text: str) -> str:
    """A line as messages quote it."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def number(text: str) -> float:
    """A finite number.

    Raises:
        BrokenLine: anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BrokenLine(f"{shown(text)} is no number")
    return value


def moment(text: str) -> float:
    """Unix seconds, from a number or an ISO time; one that names no zone is taken as UTC.

    Raises:
        BrokenLine: neither.
    """
    try:
        found = datetime.fromisoformat(text) if "-" in text else None
    except ValueError:
        raise BrokenLine(f"{shown(text)} is no time; expected Unix seconds or 2021-02-11T00:48:48") from None
    if found is None:
        return number(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


@lru_cache(maxsize=65536)
def node_names(text: str) -> tuple[str, ...]:
    """The names that a node list with bracket ranges stands for, in order: `n[1-2],m7` is m7, n1, n2.

    Raises:
        BrokenLine: no node list, or one of more than a million nodes.
    """
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415  slow

    if not _plausible(text):
        raise BrokenLine(f"{shown(text)} is no node list; expected names and ranges like n[1-4],m7")
    try:
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise BrokenLine(f"{shown(text)} is no node list: {error}") from None


def _plausible(text: str) -> bool:
    """Only characters of node lists (no operators of the library's), and no range that fills the memory."""
    if not text or not all(c.isalnum() or c in "._-[]," for c in text):
        return False
    spans = (part.split("-") for group in text.split("[")[1:] for part in group.split("]")[0].split(","))
    widths = [int(s[1]) - int(s[0]) + 1 for s in spans if len(s) == 2 and s[0].isdigit() and s[1].isdigit()]
    return math.prod(widths) <= MOST_NODES if text.count("[") < 2 or "," not in text else sum(widths) <= MOST_NODES
