"""YAML from untrusted users, with the line of every value. Aliases, tags and deep nesting are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from bftrainer.errors import BftrainerError

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 16


class SpecError(BftrainerError, ValueError):
    """Everything that is wrong with a spec, one line each: `file:line: where: what; remedy`."""


Location = tuple[int | str, ...]
"""The keys and indices that lead to a value from the top of its document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document as plain values, with the line of each."""

    name: str  # of its file, for messages
    value: Any
    lines: dict[Location, int]

    def line(self, where: Location) -> int:
        """The line of the value at `where`; for a missing value, that of the closest one that contains it."""
        while where not in self.lines and where:
            where = where[:-1]
        return self.lines.get(where, 1)

    def at(self, where: Location) -> Any:
        """The value at `where`, which must exist."""
        value = self.value
        for key in where:
            value = value[key]
        return value


def compose(text: str, name: str) -> Document:
    """The document of a YAML text. `name` is its file's, for messages.

    Raises:
        SpecError: too long, empty, not YAML, or YAML with aliases, tags, deep nesting or a key twice.
    """
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"{name}: {len(text)} characters; a spec has at most {MAX_CHARACTERS}")
    try:
        refuse_the_exotic(text, name)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise SpecError(f"{name}:1: empty; a spec needs at least name, command and nodes")
        lines: dict[Location, int] = {}
        return Document(name, _plain(root, (), lines, name), lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise SpecError(f"{name}{at}: not YAML: {problem}") from error
    except (OverflowError, UnicodeError) as error:  # "\\UFFFFFFFF"
        raise SpecError(f"{name}: not YAML: {error}") from error


def refuse_the_exotic(text: str, name: str) -> None:
    """Check that a text has no aliases (they let a small file grow without bounds), tags or deep nesting.

    Raises:
        SpecError: it has, with the line. Specs need none of these.
        yaml.YAMLError: it is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise SpecError(f"{name}:{line}: *{event.anchor}: write the value out")
        tag = getattr(event, "tag", None)
        if tag:
            raise SpecError(f"{name}:{line}: the tag {tag!r}: leave it out")
        if depth > MAX_DEPTH:
            raise SpecError(f"{name}:{line}: not a spec: nested more than {MAX_DEPTH} deep")


def _plain(node: yaml.Node, where: Location, lines: dict[Location, int], name: str) -> Any:
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise SpecError(f"{name}:{line}: a key must be a plain word")
            if key in found:
                raise SpecError(f"{name}:{line}: {key!r} is given twice; keep one of them")
            lines[(*where, key)] = line
            found[key] = _plain(value_node, (*where, key), lines, name)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, (*where, i), lines, name) for i, child in enumerate(node.value)]
    try:
        value = yaml.SafeLoader("").construct_object(node)
        str(value).encode()
    except (ValueError, ArithmeticError) as error:  # 2021-99-99, a number of thousands of digits, ...
        line = node.start_mark.line + 1
        raise SpecError(f"{name}:{line}: {node.value[:40]!r} is no value: {str(error)[:80]}") from error
    return value
