"""Studies as the store keeps them: what `search` makes of them is its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A study in the store.

    Attributes:
        text: Its study file, with the file's name and the folder that relative paths start from.
        brief: What a list shows of it, ready for JSON; also what it has used.
        ended_at: None while it has not ended.
    """

    id: int
    user: str
    name: str
    text: str
    file: str
    base: str
    status: str
    reason: str
    submitted_at: float
    ended_at: float | None
    brief: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial in the store, as JSON of `search`'s making; with a number below 0, a point that a user has
    added for the next trials."""

    number: int
    data: Mapping[str, Any]
