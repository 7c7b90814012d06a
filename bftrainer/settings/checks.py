"""Checks of several settings: sets of nodes, words with a user's name in them, addresses."""

from __future__ import annotations

import re
from string import Formatter

MAX_NODES = 100_000
"""More nodes no machine has; to expand a longer range could take all memory."""
NODES = re.compile(r"[\w.,:@&!^%*/ \[\]-]*", re.ASCII)
RANGES = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r" *(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)? *", re.ASCII)


def nodeset(text: str) -> list[str]:
    """The node names of a range such as `n[01-08],gpu3`.

    Raises:
        ValueError: the range cannot be parsed, or names more than `MAX_NODES`.
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415  slow to import

    if not NODES.fullmatch(text):
        raise ValueError(f"{text[:100]!a} is no set of nodes such as n[01-08]: names have no such characters")
    if _size(text) > MAX_NODES:
        raise ValueError(f"{text[:100]!r} names more than {MAX_NODES:,} nodes; give fewer")
    try:
        return list(NodeSet(text))
    except NodeSetException as error:
        raise ValueError(f"{text[:100]!r} is no set of nodes such as n[01-08]: {error}") from error


def _size(text: str) -> int:
    """At most so many names a range has, told without expanding it.

    Raises:
        ValueError: what stands in brackets are no numbers.
    """
    size, factor, at = 0, 1, 0
    for brackets in RANGES.finditer(text):
        between = text[at : brackets.start()]
        if "," in between:  # another name begins: its brackets multiply with one another only
            size, factor = size + factor, 1
        factor *= sum(_numbers(part) for part in brackets[1].split(","))
        size += between.count(",")
        at = brackets.end()
        if max(size, factor) > MAX_NODES:
            return max(size, factor)
    return size + factor + text[at:].count(",")


def _numbers(part: str) -> int:
    found = RANGE.fullmatch(part)
    if found is None:
        raise ValueError(f"[{part[:40]}] is no range of numbers, of 9 digits at most, such as [01-08]")
    begin, end, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    return max(0, end - begin) // max(step, 1) + 1


def check_placeholders(word: str) -> None:
    """Check that `{user}` is the only placeholder in a word, and filled in as it is.

    Raises:
        ValueError: another placeholder, something of a user, a format, or a single brace.
    """
    try:
        found = [part[1:] for part in Formatter().parse(word) if part[1] is not None]
    except ValueError:
        found = [("", "", "")]
    if any(part != ("user", "", None) for part in found):
        raise ValueError("{user} is all that can be filled in; write other braces twice")


def host_and_port(text: str) -> str:
    """The text itself, if it is host:port, or empty.

    Raises:
        ValueError: it is something else.
    """
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdecimal() and len(port) <= 5 and int(port) < 65_536):
        raise ValueError("give host:port of this machine, such as 10.0.0.1:7464; ports go to 65535")
    return text
