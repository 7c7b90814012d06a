"""Checks the messages of a worker, for its agent. Apart from `messages`: agents do without pydantic.

A worker runs its user's script, which may write anything to its connection. The agent passes on only what is
of a known kind, and makes texts fit: an honest worker's reason may be a whole traceback, with ends of lines
and bytes that are no text. The daemon validates every field, see `messages.from_agent`.
"""

from __future__ import annotations

from typing import Any

from bftrainer.model.reports import Message
from bftrainer.model.text import shown
from bftrainer.wire.parse import parse

OF_WORKERS = frozenset(
    {
        *("attached", "ready", "joined", "caught_up", "progress", "metrics", "resumed"),
        *("finished", "left", "broken", "kv", "busy", "failed", "warned"),
    }
)
"""The kinds of messages that a worker may send. Others, such as `exited`, are its agent's alone."""
TO_AGENT = frozenset({"snapshot"})
"""Those that are for its agent, which tells nobody."""
MERGED = frozenset({"progress", "metrics"})
"""Those of which only the latest counts."""
MAX_LINE = 40 * 1024
"""The longest message of a worker, in bytes; it must fit into one of its agent's."""
MAX_TEXT = 1_000
"""The longest text in a message, in characters."""
MAX_NAME = 100
"""The longest name of a metric, in characters."""


def heard(line: bytes) -> Message:
    """A worker's message, with its texts cut and made printable.

    Raises:
        ValueError: workers may not send this message.
    """
    message = parse(line)
    kind, generation = message.get("type"), message.get("generation", 0)
    if not isinstance(kind, str) or kind not in OF_WORKERS | TO_AGENT:
        raise ValueError(f"a worker sends no {str(kind)[:MAX_NAME]!a}")
    if type(generation) is not int:
        raise ValueError(f"a generation is a number, not {str(generation)[:MAX_NAME]!a}")
    return message if kind == "kv" else {name: _fit(value) for name, value in message.items()}


def fit(text: str, most: int = MAX_TEXT) -> str:
    """A text as messages may carry it: printable, and cut to `most` characters."""
    clean = shown(text[: most + 1])
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."


def _fit(value: Any) -> Any:
    if isinstance(value, str):
        return fit(value)
    if isinstance(value, list):  # warnings
        return [_fit(each) for each in value]
    if isinstance(value, dict):  # metrics
        return {fit(name, MAX_NAME): number for name, number in value.items()}
    return value
