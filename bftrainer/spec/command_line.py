"""Commands as users write them: a line in place of words, and the script that a command runs. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

SHELL = re.compile(r"[();<>|&]+")
"""A word that only a shell understands."""
EXPANDED = re.compile(r"[$`]|(?<!\S)~")
"""Text that a shell would replace."""
INTERPRETERS = re.compile(r"(?:python|pypy)[0-9.]*|(?:ba|da|k|z)?sh")
TAKES_ONE = {"-W", "-X"}
"""Options of Python that a word follows."""
NO_SCRIPT = {"-c", "-m", "-lc", "-"}
"""Options whose next word is no file."""
AS_LIST = (
    "no shell reads it; give a list of words, such as [python, train.py], or [bash, -c, '...'] for a shell"
)


def words_of(line: str) -> list[str]:
    """The words of a command that is given as one line.

    Raises:
        ValueError: it has an open quotation mark, several lines, or what only a shell understands.
    """
    text = line.replace("\\\n", " ").strip()
    if "\n" in text:
        raise ValueError(f"it has several lines, and {AS_LIST}")
    if found := EXPANDED.search(text):
        raise ValueError(f"{found[0]!r} stands for something else in a shell, but {AS_LIST}")
    parser = shlex.shlex(text, posix=True, punctuation_chars=True)
    parser.whitespace_split, parser.commenters = True, ""
    try:
        words = list(parser)
    except ValueError as error:
        raise ValueError(f"{str(error).lower()}; close the quotation mark, or give a list of words") from None
    if shell := next((word for word in words if SHELL.fullmatch(word)), None):
        raise ValueError(f"{shell!r} is for a shell, but {AS_LIST}")
    return words


def script_of(command: Sequence[str]) -> str:
    """The file that a command has an interpreter run, or runs itself by its path; empty if there is none, or
    if a trial's parameters say which."""
    program, *rest = command
    if not INTERPRETERS.fullmatch(PurePath(program).name):
        return program if "/" in program and "{" not in program else ""
    words = iter(rest)
    for word in words:
        if word in NO_SCRIPT:
            return ""
        if word in TAKES_ONE:
            next(words, "")
        elif not word.startswith("-"):
            return "" if "{" in word else word
    return ""
