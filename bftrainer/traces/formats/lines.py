"""The common part of all readers of logs: lines with a count of broken ones, numbers, times, node lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar

from bftrainer import nodesets
from bftrainer.model.text import cut
from bftrainer.traces.intervals import Interval

T = TypeVar("T")

EXAMPLES = 3
SHOWN = 120
MOST_NODES = 1_000_000
PIECE = re.compile(r"(?:\[[^\]]*\]|[^,])+")


class BrokenLineError(ValueError):
    """A line that does not have the form that its format demands; the message says what is wrong with it."""


@dataclass
class Lines:
    """Iterates over the lines that are not blank, and counts those that were refused.

    Attributes:
        source: The lines.
        number: Number of the line read last, from 1.
        seen: Lines so far that were not blank.
        broken: How many of them were refused.
        examples: The first refused ones: number and reason.
    """

    source: Iterable[str]
    number: int = 0
    seen: int = 0
    broken: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[str]:
        for raw in self.source:
            self.number += 1
            text = raw.rstrip()
            if text:
                self.seen += 1
                yield text

    def refuse(self, why: object, number: int | None = None) -> None:
        """Count the line read last as broken, or the one of this number."""
        self.broken += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((number or self.number, str(why)))

    def each(self, parse: Callable[[str], T | None]) -> Iterator[T]:
        """The results of `parse` for each line, without None and refused lines."""
        for text in self:
            try:
                found = parse(text)
            except BrokenLineError as error:
                self.refuse(error)
            else:
                if found is not None:
                    yield found


@dataclass(frozen=True, slots=True)
class ReadIntervals:
    """A reader's result for a log. Times in Unix seconds; an interval without end ends at infinity."""

    intervals: Iterable[Interval]
    nodes: frozenset[str]
    begin: float
    end: float
    notes: tuple[str, ...] = ()


def shown(text: str) -> str:
    """A line as messages quote it."""
    return repr(cut(text, SHOWN))


def number(text: str) -> float:
    """A finite number.

    Raises:
        BrokenLineError: anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BrokenLineError(f"{shown(text)} is no number")
    return value


def moment(text: str) -> float:
    """Unix seconds, from a number or an ISO time; one that names no zone is taken as UTC.

    Raises:
        BrokenLineError: neither.
    """
    try:
        if "-" not in text:
            return number(text)
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BrokenLineError(
            f"{shown(text)} is no time; expected Unix seconds or 2021-02-11T00:48:48"
        ) from None


@lru_cache(maxsize=4096)
def node_names(text: str) -> tuple[str, ...]:
    """The names that a node list with bracket ranges stands for, in order: `n[1-2],m7` is m7, n1, n2.

    Raises:
        BrokenLineError: no node list, or one of more than a million nodes.
    """
    try:
        names = nodesets.expand(text, MOST_NODES)
    except ValueError as error:
        raise BrokenLineError(str(error)) from None
    if not names:
        raise BrokenLineError(f"{shown(text)} is no node list; expected names and ranges like n[1-4],m7")
    return names
