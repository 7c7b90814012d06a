"""Sets of nodes in the short form that batch systems print: rack[1-2]n[01-03],gpu7. They are counted before
ClusterShell expands them; others are folded into this form."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from sys import intern

MAX_NODES = 100_000
"""More nodes no machine has; to expand a longer list could take all memory."""
NAMES = re.compile(r"[\w.,:/\[\]-]*", re.ASCII)
OPERATIONS = re.compile(r"[\w.,:@&!^%*/ \[\]-]*", re.ASCII)
"""ClusterShell also has operations such as n[1-9]!n5, and groups."""
NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")
"""A node's name with its last number apart."""
RANGES = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r" *(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)? *", re.ASCII)


def expand(text: str, most: int = MAX_NODES, *, operations: bool = False) -> tuple[str, ...]:
    """The names of the nodes, sorted; `operations` of ClusterShell are allowed only where we trust who wrote
    them.

    Raises:
        ValueError: the text cannot be read, or names more than `most` nodes.
    """
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415  slow

    if not (OPERATIONS if operations else NAMES).fullmatch(text):
        raise ValueError(f"{text[:100]!a} is no set of nodes such as n[01-08]: names have no such characters")
    if _at_most(text, most) > most:
        raise ValueError(f"{text[:100]!r} names more than {most:,} nodes; give fewer")
    try:
        return tuple(map(intern, NodeSet(text, resolver=None if operations else RESOLVER_NOGROUP)))
    except NodeSetException as error:
        raise ValueError(f"{text[:100]!r} is no set of nodes such as n[01-08]: {str(error)[:200]}") from error


def folded(names: Iterable[str]) -> str:
    """A list of nodes with ranges in the last number of their names: n[1-3],rack1n[01-18]."""
    from ClusterShell.RangeSet import RangeSet  # noqa: PLC0415  slow to import

    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    plain = []
    for name in sorted(set(names)):
        if match := NUMBERED.fullmatch(name):
            alike[match[1], match[3]].append(match[2])
        else:
            plain.append(name)
    for (head, tail), numbers in alike.items():
        one = len(numbers) == 1
        plain.append(f"{head}{numbers[0]}{tail}" if one else f"{head}[{RangeSet.fromlist(numbers)}]{tail}")
    return ",".join(sorted(plain))


def _at_most(text: str, most: int) -> int:
    """Return an upper bound of a set's names without expanding it; not exact above `most`."""
    size, factor, at = 0, 1, 0
    for brackets in RANGES.finditer(text):
        between = text[at : brackets.start()]
        if "," in between:  # another name begins: its brackets multiply with one another only
            size, factor = size + factor, 1
        factor *= sum(map(_numbers, brackets[1].split(",")))
        size += between.count(",")
        at = brackets.end()
        if max(size, factor) > most:
            return max(size, factor)
    if "[" in text[at:] or text.count("[") != text.count("]"):
        raise ValueError(f"{text[:100]!r} is no set of nodes such as n[01-08]: a bracket does not end")
    return size + factor + text[at:].count(",")


def _numbers(part: str) -> int:
    found = RANGE.fullmatch(part)
    if found is None:
        raise ValueError(f"[{part[:40]}] is no range of numbers, of 9 digits at most, such as [01-08]")
    begin, end, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
    return max(0, end - begin) // max(step, 1) + 1
