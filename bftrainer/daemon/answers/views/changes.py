"""Rows that readers know, and what changes of them from one moment to the next. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from bftrainer.api.listing import dumps, joined
from bftrainer.threads import check

K = TypeVar("K", int, str)


class FeedLine(NamedTuple):
    """One row as JSON, for admins, its `owner` and others; None: others do not get it."""

    owner: str
    admin: bytes
    own: bytes
    other: bytes | None

    def told(self, user: str | None) -> bytes | None:
        """Return what a user gets; None stands for an admin."""
        if user is None:
            return self.admin
        return self.own if user == self.owner else self.other


def private(owner: str, row: Mapping[str, Any]) -> FeedLine:
    """Return a row of which only its owner and admins know."""
    text = dumps(row).encode()
    return FeedLine(owner, text, text, None)


Changes = dict[K, tuple[FeedLine | None, FeedLine | None]]
"""Key -> its line before, and now; None where there was or is none."""


@dataclass(slots=True)
class FeedRows(Generic[K]):
    """Lines by key. A line is rebuilt only where the facts that it is made of differ from before."""

    lines: dict[K, FeedLine] = field(default_factory=dict)
    _facts: dict[K, object] = field(default_factory=dict)

    def update(
        self, keys: Collection[K], rows: Iterable[tuple[K, object, Callable[[], FeedLine]]]
    ) -> Changes[K]:
        """Take in rows of some of `keys`, each with the facts that it depends on, and how it is made; lines
        of other keys go. Return what has changed."""
        changed: Changes[K] = {}
        for key in [key for key in self.lines if key not in keys]:
            changed[key] = (self.lines.pop(key), None)
            del self._facts[key]
        for key, facts, make in rows:
            check()
            if key not in self._facts or self._facts[key] != facts:
                before = self.lines.get(key)
                self._facts[key] = facts
                self.lines[key] = line = make()
                if line != before:
                    changed[key] = (before, line)
        return changed


def all_of(board: FeedRows[K], user: str | None) -> bytes:
    """Return all lines that a user gets, as a JSON array."""
    texts = list[bytes]()
    for line in board.lines.values():
        check()
        if (text := line.told(user)) is not None:
            texts.append(text)
    return joined(texts)


def of_user(changed: Changes[K], user: str | None) -> tuple[list[bytes], list[K]]:
    """Return the changes that a user gets: rows that are new or differ, and the keys of those that have
    gone."""
    rows, gone = list[bytes](), list[K]()
    for key, (before, now) in changed.items():
        old = before.told(user) if before else None
        new = now.told(user) if now else None
        if new is None and old is not None:
            gone.append(key)
        elif new is not None and new != old:
            rows.append(new)
    return rows, gone
