"""Messages from text. The other side may be anybody's program: what it sends is bounded before it is used."""

from __future__ import annotations

import json
from typing import Any

from bftrainer.model.reports import Message

MAX_DEPTH = 20
"""Nesting of a message's values, at most; the project's own are 4 deep."""


def parse(text: str | bytes) -> Message:
    """The message that a text says.

    Raises:
        ValueError: not a JSON object, or nested too deep.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        found = None
    if type(found) is not dict or not is_shallow(found):
        raise ValueError(f"a message is an object of JSON, at most {MAX_DEPTH} deep")
    return found


def is_shallow(value: Any) -> bool:
    """True if a value of JSON is at most `MAX_DEPTH` deep, counted without recursion. Later Pythons read some
    that are too deep for what walks through them."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        if not level:
            return True
    return False


def _inside(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value
