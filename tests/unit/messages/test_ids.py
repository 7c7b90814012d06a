"""What users are refused or warned of has an id: nothing that is raised or warned has a text of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bftrainer

PACKAGE = Path(bftrainer.__file__).parent
ADD_THE_ID = {
    "BusyError",
    "MungeError",
    "NotAllowedError",
    "NotLetInError",
    "StateDirError",
    "UnauthenticatedError",
}
"""Errors whose class gives all of their texts its id."""
WITHIN_MESSAGES = {
    "AssertionError",
    "BrokenLineError",  # of a log: TOO_BROKEN follows its words
    "CommandError",  # of Alembic, within DATABASE
    "NotADirectoryError",
    "NotOfUserError",
    "NoRoomError",
    "OSError",
    "OddAnswerError",  # NO_DAEMONS_ANSWER has its words
    "PermissionError",
    "RuntimeError",
    "SchedulerError",  # SCHEDULER and PILOTS of the daemon, BATCH_SYSTEM of commands, findings of the check
    "TextError",  # of a batch system's output, within a SchedulerError
    "TimeoutError",  # for code that waits
    "TypeError",
    "UnsureError",
    "ValueError",  # of a spec, of settings, of a YAML file: WRONG_KEY, WRONG_SETTING, UNREADABLE
    "_BusyError",  # of the client: TAKES_NONE has its words
    "_DeniedError",
    "_NoJsonError",  # a broken line, too
}
"""Errors whose words reach a user within a message."""
BY_NO_USER = {
    "ArithmeticError",  # of a solver: another allocator makes the plan, and ALLOCATOR says so
    "AttributeError",  # of Python's import
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionResetError",
    "ForgedError",  # between daemon and agents
    "GoodputError",  # of figures: BATCH_STAYS and ODD_MEASUREMENT have its words
    "ImageError",  # of a snapshot, which is then taken the slow way
    "PlacementError",  # no command places trials
    "TornError",  # of a process, which BEGINS_ANEW
    "pickle.UnpicklingError",
}
"""Errors of bftrainer's parts with each other."""
EXEMPT = ADD_THE_ID | WITHIN_MESSAGES | BY_NO_USER
TESTS = "testing"
"""A folder of test doubles."""


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


def trees() -> Iterator[tuple[str, ast.Module]]:
    """All modules that users meet, with their paths in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        if where.parts[0] != TESTS:
            yield str(where), ast.parse(path.read_text(encoding="utf-8"))


def test_refusals_have_ids() -> None:
    wrong = [
        f"{where}:{call.lineno} {words}"
        for where, tree in trees()
        for call in raised(tree)
        if ast.unparse(call.func) not in EXEMPT
        for words in own_words(call)
    ]
    assert not wrong, "give these a message in bftrainer/messages"


def warned(where: str, tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that warn: a script, in its log too, and who types a command. What daemon and agents write
    to their logs has the name of its event, which docs/metrics.md lists."""
    names = ["warnings.warn", "note_warning", "warnings.note_warning"]
    if where.startswith("elastic/") and where not in OWN_TROUBLE:
        names += ["log.warning", "log.error"]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name in names or (name == "say" and "warning: " in ast.unparse(call)):
            yield call


OWN_TROUBLE = ("elastic/horovod/driver.py", "elastic/state/handover.py")
"""Logs of the launcher's driver, and of a handover that is made in another way."""


def test_warnings_have_ids() -> None:
    wrong = [
        f"{where}:{call.lineno} {words}"
        for where, tree in trees()
        for call in warned(where, tree)
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
