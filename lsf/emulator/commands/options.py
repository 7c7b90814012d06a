"""Command lines as LSF's commands read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

LIMIT = re.compile(r"(?:(\d+):)?(\d+)(?:/\S+)?")


class UsageError(Exception):
    """The command line cannot be understood; the text goes to standard error."""


def split(
    words: Sequence[str], with_value: Iterable[str], flags: Iterable[str], *, command: str, stop: bool = False
) -> tuple[dict[str, str], list[str]]:
    """Options and the other words. A value may stand by itself or glued to an option of one letter (-R"...").

    `stop`: the first word that is no option ends the options, as in bsub.

    Raises:
        UsageError: an option is not known, or lacks its value.
    """
    valued, bare = set(with_value), set(flags)
    found: dict[str, str] = {}
    rest: list[str] = []
    todo = list(words)
    while todo:
        word = todo.pop(0)
        name = word[1:]
        if not word.startswith("-") or not name:
            rest.append(word)
            if stop:
                return found, rest + todo
        elif name in bare:
            found[name] = ""
        elif name in valued:
            if not todo:
                raise UsageError(f"{command}: option requires an argument -- {name}\n")
            found[name] = todo.pop(0)
        elif name[0] in valued:
            found[name[0]] = name[1:]
        else:
            raise UsageError(f"{command}: illegal option -- {name}\n")
    return found, rest


def limit_s(text: str) -> float:
    """`[hours:]minutes` in seconds.

    Raises:
        ValueError: it is not such a time.
    """
    found = LIMIT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return 60.0 * (60 * int(found[1] or 0) + int(found[2]))


def selects_compute(requirement: str) -> bool:
    """Return whether a requirement leaves launch hosts out, as select[CN] does."""
    return bool(re.search(r"select\s*\[[^]]*\bCN\b", requirement))
