"""Reads YAML, with the line of every value, in one pass over the parser's events.

Of YAML, files have mappings, lists and scalars; tags and deep nesting are refused. A plain scalar is null,
true, false, a decimal number, or text: octals, hexadecimals, dates and `yes` are text. Files that their users
read themselves, such as settings, may have aliases, within bounds.
"""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bftrainer.files import read_text
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.specs import NOT_YAML, TOO_LARGE, WRONG_KEY
from bftrainer.model.text import held, plain, shown

MAX_DEPTH = 32
"""Deepest nesting of lists and mappings in a file that its user reads."""
MAX_VALUES = 300_000
"""Values of such a file, keys included, at most; what an alias stands for counts wherever it stands."""
MAX_NUMBER = 64
"""Characters of a number."""
OF_LIBYAML = "maximum nesting depth"
"""Words of some libyaml versions for a bound of their own, which they hit in reading ahead."""
QUOTED = 80
"""Characters of a value that are repeated in a message, at most."""
QUOTED_PROBLEM = 200
"""... and of what a parser says."""
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser, where PyYAML has been built with it: 20 times as fast as the one in Python."""
WORDS: Mapping[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + word[1:]) for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
"""Plain scalars that mean something else than their letters."""
MERGED = "<<"
"""The key of mappings whose keys hold where a mapping does not give them itself."""
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(rf"{_WHOLE.pattern}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?")

Location = tuple[int | str, ...]
"""The keys and indices that lead to a value from the top of its document."""


class YamlFileError(ValueError):
    """A text that is not read; of one line, which names file and line. `refusal` is the message of a spec."""

    def __init__(self, said: str, refusal: Diagnostic = NOT_YAML) -> None:
        super().__init__(said)
        self.refusal = refusal


def read_yaml(path: Path, most_kb: int) -> Any:
    """Return the plain values in a YAML file of at most `most_kb` kB; None for an empty one.

    Raises:
        YamlFileError: it cannot be read, is no YAML, or has tags, more values or deeper ones than allowed.
    """
    try:
        text = read_text(path, most_kb)
    except (OSError, ValueError) as error:  # no text
        raise YamlFileError(f"{path}: {shown(str(error))[:QUOTED_PROBLEM]}") from error
    return plain_values(text, str(path))


def plain_values(text: str, name: str) -> Any:
    """The plain values in a YAML text; `name` is what messages call it. None for an empty one.

    Raises:
        YamlFileError: it is no YAML, or has tags, more values or deeper ones than allowed.
    """
    return parsed(text, YamlReader(name, MAX_DEPTH, MAX_VALUES, aliases=True))


def parsed(text: str, reader: YamlReader) -> Any:
    """The value of a YAML text; `reader` has the lines of all that it consists of then.

    Raises:
        YamlFileError: not YAML, or not within the reader's bounds.
    """
    try:
        return reader.document(yaml.parse(text, Loader=LOADER))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{reader.name}:{mark.line + 1}" if mark else reader.name
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
        deep = OF_LIBYAML in problem
        why = reader.too_deep() if deep else f"not YAML: {shown(problem)[:QUOTED_PROBLEM]}"
        raise YamlFileError(f"{at}: {why}") from error
    except YamlFileError:
        raise
    except (OverflowError, ValueError) as error:  # half of a surrogate pair; "\\UFFFFFFFF"
        raise YamlFileError(f"{reader.name}: not YAML: {shown(str(error))[:QUOTED]}") from error


@dataclass(slots=True)
class YamlReader:
    """Builds plain values from a parser's events.

    `depth`: the deepest nesting of lists and mappings. `left`: the values that there may be, which have `kb`
    of memory for their characters. `check` is called at each value.
    """

    name: str  # of the file, for messages
    depth: int
    left: int
    kb: float = math.inf
    aliases: bool = False
    check: Callable[[], None] = lambda: None
    lines: dict[Location, int] = field(default_factory=dict)
    texts: dict[Location, str] = field(default_factory=dict)
    """Numbers, true and false as they are written, such as 1e-3."""
    _events: Iterator[Any] = field(init=False)
    _held: int = 0  # bytes of memory for the characters so far
    _named: dict[str, tuple[Any, int] | None] = field(default_factory=dict)
    """The value that an anchor names, and its number of values; None: it is open."""

    def at(self, line: int, text: str, refusal: Diagnostic = NOT_YAML) -> YamlFileError:
        """Return the error for a line; the file's reader puts it into a message."""
        return YamlFileError(f"{self.name}:{line}: {text}", refusal)

    def too_deep(self) -> str:
        """Return the message on values nested deeper than `depth`."""
        return f"nested too deeply, more than {self.depth} deep: write it flatter"

    def document(self, events: Iterator[Any]) -> Any:
        """The only document's value; None of an empty text.

        Raises:
            YamlFileError: there is another document, or what is there is not allowed.
        """
        self._events = events
        next(events)  # the stream's start
        if not isinstance(next(events), yaml.DocumentStartEvent):
            return None
        value = self._value(next(events), ())
        next(events)  # the document's end
        after = next(events)
        if isinstance(after, yaml.DocumentStartEvent):
            raise self.at(_line(after), "not YAML: but found another document; keep one")
        return value

    def _value(self, event: Any, where: Location) -> Any:
        self.check()
        line = _line(event)
        self.lines.setdefault(where, line)
        if self.aliases and isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), line)
        self._count(event, line)
        if len(where) > self.depth:
            raise self.at(line, self.too_deep(), TOO_LARGE)
        if event.anchor is None:
            return self._made(event, where, line)
        self._named[event.anchor], before = None, self.left
        value = self._made(event, where, line)
        self._named[event.anchor] = value, before - self.left + 1
        return value

    def _made(self, event: Any, where: Location, line: int) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(where)
        if isinstance(event, yaml.SequenceStartEvent):
            found: list[Any] = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                found.append(self._value(event, (*where, len(found))))
            return found
        value = self._scalar(event, line)
        if isinstance(value, int | float):
            self.texts[where] = event.value
        return value

    def _alias(self, name: str, line: int) -> Any:
        named = self._named.get(name, (None, -1))
        if named is None:
            raise self.at(line, f"*{name[:QUOTED]} stands within itself: write the value out")
        value, size = named
        if size < 0:
            raise self.at(line, f"not YAML: nothing before it is named *{name[:QUOTED]}")
        self._use(size, line)
        return value

    def _mapping(self, where: Location) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            self._count(event, line)
            if not isinstance(event, yaml.ScalarEvent):
                raise self.at(line, "a key must be a plain word")
            key = self._key(event.value, line)
            if key in found:
                raise self.at(line, f"{key[:QUOTED]!r} is given twice; keep one of them")
            self.lines[*where, key] = line
            found[key] = self._value(next(self._events), (*where, key))
        return self._merged(found, self.lines[*where, MERGED]) if self.aliases and MERGED in found else found

    def _merged(self, found: dict[str, Any], line: int) -> dict[str, Any]:
        given = found.pop(MERGED)
        others = given if isinstance(given, list) else [given]
        if not all(isinstance(other, dict) for other in others):
            raise self.at(line, f"not YAML: {MERGED} takes a mapping, or a list of mappings")
        return dict(ChainMap(found, *others))

    def _count(self, event: Any, line: int) -> None:
        """Aliases let a small file grow without bounds, tags make objects."""
        if isinstance(event, yaml.AliasEvent):
            raise self.at(line, f"*{str(event.anchor)[:QUOTED]}: write the value out")
        if event.tag:
            raise self.at(line, f"the tag {shown(event.tag)[:QUOTED]!r}: leave it out")
        self._use(1, line)
        if isinstance(event, yaml.ScalarEvent):
            self._held += held(event.value)
            if self._held > self.kb * 1000:
                said = f"with characters such as {max(event.value)!r}, more than {self.kb} kB of memory"
                raise self.at(line, f"{said}; shorten the values that have them", TOO_LARGE)

    def _use(self, values: int, line: int) -> None:
        self.left -= values
        if self.left < 0:
            raise self.at(line, "too many values; shorten it", TOO_LARGE)

    def _scalar(self, event: Any, line: int) -> Any:
        text: str = event.value
        if event.implicit[0]:  # neither quoted nor a block
            if text in WORDS:
                return WORDS[text]
            if _NUMBER.fullmatch(text):
                if len(text) > MAX_NUMBER:
                    said = f"{text[:40]!r}... is no value: a number has at most {MAX_NUMBER} characters"
                    raise self.at(line, said, TOO_LARGE)
                return int(text) if _WHOLE.fullmatch(text) else float(text)
        return text

    def _key(self, text: str, line: int) -> str:
        try:
            return plain(text)
        except ValueError as error:
            raise self.at(line, f"the key '{shown(text)[:QUOTED]}' {error}", WRONG_KEY) from error


def _line(event: Any) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
