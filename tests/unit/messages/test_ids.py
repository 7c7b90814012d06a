"""What users are refused has an id: no raise in these places has a text of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bftrainer

PACKAGE = Path(bftrainer.__file__).parent
PLACES = (
    "api/client.py",
    "api/follow.py",
    "cli",
    "daemon/answers",
    "daemon/lanes.py",
    "daemon/studies",
    "replay",
    "search",
    "traces",
)
PARTS_OF_MESSAGES = {
    "AssertionError",
    "BrokenLineError",  # of a log: TOO_BROKEN follows its words
    "OSError",
    "PermissionError",
    "PlacementError",  # no command places trials
    "RuntimeError",
    "TimeoutError",  # for code that waits
    "TypeError",
    "ValueError",
    "_BusyError",  # of the client: TAKES_NONE has its words
    "_NoJsonError",  # a broken line, too
}
"""Errors whose words reach a user within a message, or that no user can cause."""


def raised(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that make errors which a file raises."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from (
                call
                for call in ast.walk(node.exc)
                if isinstance(call, ast.Call)
                and ast.unparse(call.func).endswith(("Error", "BadParameter", ".error"))
            )


def own_words(call: ast.Call) -> Iterator[str]:
    """Texts among its arguments that no message has. A frame such as "{path}: {error}" has no words."""
    for given in call.args:
        parts = [*ast.walk(given)] if isinstance(given, ast.JoinedStr | ast.BinOp) else [given]
        words = " ".join(p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str))
        if re.search("[a-z]+ +[a-z]+", words) or any(getattr(p, "attr", "") == "strerror" for p in parts):
            yield ast.unparse(given)


@pytest.mark.parametrize("place", PLACES)
def test_refusals_have_ids(place: str) -> None:
    there = PACKAGE / place
    wrong = [
        f"{path.relative_to(PACKAGE)}:{call.lineno} {words}"
        for path in ([there] if there.is_file() else sorted(there.rglob("*.py")))
        for call in raised(ast.parse(path.read_text(encoding="utf-8")))
        if ast.unparse(call.func) not in PARTS_OF_MESSAGES
        for words in own_words(call)
    ]
    assert not wrong, "give these a message in bftrainer/messages"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("raise LogError('no line')", 1),
        ("raise LogError(f'{path}: no line')", 1),
        ("raise LogError(f'{path}: {error.strerror}')", 1),
        ("raise self._beyond(LogError('too ' + 'many'), 'bound')", 1),
        ("raise document.error(('trials',), f'{n} are too many')", 1),
        ("raise LogError(f'{path}:{line}: {error}')", 0),
        ("raise LogError(BROKEN.say(path=path))", 0),
        ("raise BusyError(BUSY.say(what='a b'), 503)", 0),
    ],
)
def test_own_words_are_found(line: str, count: int) -> None:
    assert sum(bool([*own_words(call)]) for call in raised(ast.parse(line))) == count
