"""Reads YAML files that users name, such as settings. Aliases are allowed, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bftrainer.files import read_text
from bftrainer.model.text import shown

MAX_DEPTH = 32
"""So deep may lists and mappings lie in each other."""
MAX_VALUES = 300_000
"""So many values a file may have, keys included; what an alias stands for counts wherever it stands."""
OF_LIBYAML = "maximum nesting depth"
"""How some versions of libyaml word a bound of their own, which they meet in reading ahead of the events."""
QUOTED = 200
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser, where PyYAML has been built with it: 20 times as fast as the one in Python."""


class YamlFileError(ValueError):
    """A file that cannot be read; the message, of one line, names the file and what is wrong."""


def read_yaml(path: Path, most_kb: int) -> Any:
    """The plain values in a YAML file of at most so many kB; None for an empty one.

    Raises:
        YamlFileError: it cannot be read, is no YAML, or has tags, more values or deeper ones than allowed.
    """
    try:
        text = read_text(path, most_kb)
    except (OSError, ValueError) as error:  # no text
        raise YamlFileError(f"{path}: {shown(str(error))[:QUOTED]}") from error
    return plain_values(text, str(path))


def plain_values(text: str, name: str) -> Any:
    """The plain values in a YAML text; `name` is what messages call it. None for an empty one.

    Raises:
        YamlFileError: it is no YAML, or has tags, more values or deeper ones than allowed.
    """
    try:
        _Bounds(yaml.parse(text, Loader=LOADER)).check()
        return yaml.load(text, Loader=LOADER)  # noqa: S506  a safe one, whichever it is
    except yaml.YAMLError as error:
        raise YamlFileError(f"{name}{problem_of(error, MAX_DEPTH)}") from error
    except ValueError as error:  # a date that there is not; a number of 5,000 digits
        raise YamlFileError(f"{name}: {shown(str(error))[:QUOTED]}") from error


def problem_of(error: yaml.YAMLError, depth: int) -> str:
    """What follows a file's name where a parser finds no YAML, or one deeper than a multiple of the `depth`
    that is allowed: the line, if it is known, and what is wrong."""
    mark = getattr(error, "problem_mark", None)
    at = f":{mark.line + 1}" if mark else ""
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    return (
        f"{at}: {too_deep(depth)}" if OF_LIBYAML in problem else f"{at}: not YAML: {shown(problem)[:QUOTED]}"
    )


def too_deep(depth: int) -> str:
    """What is said of values that lie in more lists and mappings than `depth`."""
    return f"nested too deeply, more than {depth} deep: write it flatter"


@dataclass(slots=True)
class _Bounds:
    """Goes through a parser's events, which are there before any value is made."""

    events: Iterator[Any]
    sizes: dict[str, int | None] = field(default_factory=dict)  # of what an anchor names; None: it is open
    open: list[tuple[str | None, int]] = field(default_factory=list)  # anchor, values before it
    values: int = 0

    def check(self) -> None:
        """See that what the events describe is within the bounds.

        Raises:
            ValueError: it is not.
        """
        for event in self.events:
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, before = self.open.pop()
                if anchor is not None:
                    self.sizes[anchor] = self.values - before
            elif isinstance(event, yaml.NodeEvent):
                self._node(event, line)

    def _node(self, event: Any, line: int) -> None:
        if getattr(event, "tag", None):
            raise ValueError(f"line {line}: the tag {event.tag[:40]!r}: leave it out")
        if isinstance(event, yaml.AliasEvent):
            name = event.anchor or ""
            size = self.sizes.get(name, 0)  # 0: unknown, which the reader refuses
            if size is None:
                raise ValueError(f"line {line}: *{name[:40]} stands within itself: write the value out")
            self.values += size
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open.append((event.anchor, self.values))
            if event.anchor is not None:
                self.sizes[event.anchor] = None
            self.values += 1
        else:
            self.values += 1
            if event.anchor is not None:
                self.sizes[event.anchor] = 1
        if len(self.open) > MAX_DEPTH:
            raise ValueError(f"line {line}: {too_deep(MAX_DEPTH)}")
        if self.values > MAX_VALUES:
            raise ValueError(f"line {line}: more than {MAX_VALUES:,} values, aliases written out: shorten it")
