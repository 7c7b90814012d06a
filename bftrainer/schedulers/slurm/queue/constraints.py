"""A job's `--constraint` on its nodes, and contiguous nodes. Pure.

Slurm knows features of every node (`a&b`, `a|b`, parentheses), of all nodes alike (`[a|b]`), and of a number
of nodes each (`a*2&b*1`). A constraint that cannot be read here counts as none: then any node may do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

TOKEN = re.compile(r"[&|,()]|[^&|,()\[\]*\s]+")
MOST_CHARACTERS = 4096
MOST_SETS = 64
"""More alternatives than this are not followed up: they can multiply with every word."""

Features = tuple[frozenset[str], ...]
"""Alternatives: a node has to have all features of one of them."""
ANY: Features = (frozenset(),)


class _UnreadableError(ValueError):
    """A constraint of another form."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a job's nodes: at least `count` of them have these features; 0: all that remain."""

    features: Features
    count: int = 0


UNREADABLE = ((Part(ANY),),)
"""Stands for a constraint that cannot be read."""


@lru_cache(maxsize=1024)
def ways(text: str) -> tuple[tuple[Part, ...], ...]:
    """The ways to satisfy a constraint: in each of them, all of the parts count."""
    try:
        if len(text) > MOST_CHARACTERS:
            raise _UnreadableError
        return tuple(_ways(text))
    except _UnreadableError:
        return UNREADABLE


def _ways(text: str) -> Iterator[tuple[Part, ...]]:
    if not text:
        yield (Part(ANY),)
    elif "*" in text:
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        yield tuple(_counted(word) for word in _split(inner, "&"))
    elif "[" in text:
        before, _, rest = text.partition("[")
        inside, closed, after = rest.partition("]")
        if not closed:
            raise _UnreadableError
        alternatives = _split(inside, "|")
        if len(alternatives) > MOST_SETS:
            raise _UnreadableError
        for alternative in alternatives:
            yield (Part(_alternatives(f"{before}({alternative}){after}")),)
    else:
        yield (Part(_alternatives(text)),)


def _counted(word: str) -> Part:
    match = re.fullmatch(r"(.+)\*(\d{1,9})", word)
    if not match:
        raise _UnreadableError
    return Part(_alternatives(match[1]), int(match[2]))


def _split(text: str, at: str) -> list[str]:
    """The words of a text between separators that are not in parentheses."""
    words, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == at and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    return words


def _alternatives(text: str) -> Features:
    if any(letter in text for letter in "[]*!"):
        raise _UnreadableError
    tokens = TOKEN.findall(text)
    found, end = _expression(tokens, 0)
    if end != len(tokens):
        raise _UnreadableError
    return found


def _expression(tokens: Sequence[str], at: int, depth: int = 0) -> tuple[Features, int]:
    """Read from a token on, from left to right; returns what was read, and where it ended."""
    found, at = _operand(tokens, at, depth)
    while at < len(tokens) and tokens[at] in "&|,":
        operator = tokens[at]
        other, at = _operand(tokens, at + 1, depth)
        found = found + other if operator == "|" else tuple(a | b for a in found for b in other)
        if len(found) > MOST_SETS:
            raise _UnreadableError
    return found, at


def _operand(tokens: Sequence[str], at: int, depth: int) -> tuple[Features, int]:
    if at >= len(tokens) or depth > MOST_SETS or tokens[at] in ("&", "|", ",", ")"):
        raise _UnreadableError
    if tokens[at] != "(":
        return (frozenset({tokens[at]}),), at + 1
    found, end = _expression(tokens, at + 1, depth + 1)
    if end >= len(tokens) or tokens[end] != ")":
        raise _UnreadableError
    return found, end + 1


def stretch(
    line: Iterable[str],
    usable: Collection[str],
    *,
    count: int,
    cpus: int,
    required: Collection[str],
    cpus_of: Callable[[str], int],
    price_of: Callable[[str], int],
) -> set[str] | None:
    """The cheapest nodes of `line`, the nodes of the machine in their order, that lie side by side; None if
    there are none such.

    They are `usable`, at least `count`, have `cpus` CPUs together, and include all that are `required`. Of
    several stretches at one price the first is meant.
    """
    best: tuple[int, list[str]] | None = None
    for run in _runs(line, usable):
        if len(run) < count or not set(required).issubset(run):
            continue
        must = [i for i, name in enumerate(run) if name in required]
        has, prices = [cpus_of(name) for name in run], [price_of(name) for name in run]
        first = total = price = 0
        for last in range(len(run)):
            total, price = total + has[last], price + prices[last]
            while (  # what it begins with is not needed
                last - first >= count and total - has[first] >= cpus and not (must and must[0] <= first)
            ):
                total, price, first = total - has[first], price - prices[first], first + 1
            enough = last - first + 1 >= count and total >= cpus and (not must or must[-1] <= last)
            if enough and (best is None or price < best[0]):
                best = price, run[first : last + 1]
    return None if best is None else set(best[1])


def _runs(line: Iterable[str], usable: Collection[str]) -> Iterator[list[str]]:
    """The usable nodes that have no gap between them."""
    run: list[str] = []
    for name in line:
        if name in usable:
            run.append(name)
        elif run:
            yield run
            run = []
    if run:
        yield run
