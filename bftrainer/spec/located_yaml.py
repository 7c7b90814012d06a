"""YAML from untrusted users, with the line of every value, read in one pass over the parser's events.

Of YAML, specs have mappings, lists and scalars. Aliases, tags and deep nesting are refused. A plain scalar is
null, true, false, a decimal number, or text: octals, hexadecimals, dates and `yes` are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from bftrainer.errors import BftrainerError
from bftrainer.messages.specs import EMPTY, NOT_YAML, TOO_LARGE, WRONG_KEY
from bftrainer.model.text import plain, shown
from bftrainer.threads import check
from bftrainer.yaml_files import LOADER, problem_of, too_deep

FAST = LOADER is not yaml.SafeLoader
"""Whether it is libyaml's."""
MAX_DEPTH = 16
MAX_NUMBER = 64
"""Characters of a number."""
QUOTED = 80
"""So many characters of a value are repeated in a message."""
WORDS: Mapping[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + word[1:]) for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
"""Plain scalars that mean something else than their letters."""
_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(rf"{_WHOLE.pattern}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9]+(?:[eE][-+]?[0-9]+)?")


class SpecError(BftrainerError, ValueError):
    """Everything that is wrong with a spec, one line each: `file:line: where: what; remedy`."""


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """How large a text of YAML may be: in kB (1000 bytes), and in values, keys included."""

    kb: int
    values: int


SPEC = YamlLimits(kb=32, values=1024)
"""One spec, of anybody. A daemon keeps those of thousands in memory, where a short value takes 100 bytes."""
STUDY = YamlLimits(kb=32, values=4096)
"""One file of a study or of an experiment."""
SPECS = YamlLimits(kb=16_000, values=2**22)
"""A list of specs, which only its user's own processes read."""

NEEDS = "a spec needs at least name, command and nodes"
"""What an empty text lacks, where it should have a spec."""

Location = tuple[int | str, ...]
"""The keys and indices that lead to a value from the top of its document."""


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document as plain values, with the line of each."""

    name: str  # of its file, for messages
    value: Any
    lines: dict[Location, int]
    texts: dict[Location, str] = field(default_factory=dict)
    """Numbers, true and false as they are written, such as 1e-3."""

    def line(self, where: Location) -> int:
        """The line of the value at `where`; for a missing value, that of the closest one that contains it."""
        while where not in self.lines and where:
            where = where[:-1]
        return self.lines.get(where, 1)

    def error(self, where: Location, text: str) -> SpecError:
        """An error with the line of the value at `where`, or of what contains it."""
        return SpecError(f"{self.name}:{self.line(where)}: {'.'.join(str(part) for part in where)}: {text}")

    def as_written(self, where: Location, value: Any) -> Any:
        """The value at `where`, a list or mapping, with its numbers, true and false as they are written."""
        if isinstance(value, list):
            return [self.texts.get((*where, i), own) for i, own in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.texts.get((*where, key), own) for key, own in value.items()}
        return value

    def at(self, where: Location) -> Any:
        """The value at `where`, which must exist."""
        value = self.value
        for key in where:
            value = value[key]
        return value


def compose(text: str, name: str, bounds: YamlLimits = SPEC, needs: str = NEEDS) -> Document:
    """The document of a YAML text. `name` is its file's, and `needs` what an empty one lacks, for messages.

    Raises:
        SpecError: too long, empty, not YAML, or with aliases, tags, deep nesting, control characters or a key
            that is given twice.
    """
    try:
        size = len(text.encode())
        if size > bounds.kb * 1000:
            raise SpecError(
                TOO_LARGE.ends(f"{name}: {size} bytes; a spec has at most {bounds.kb} kB: shorten it")
            )
        reader = _Reader(yaml.parse(text, Loader=LOADER), name, bounds.values, needs)
        return Document(name, reader.document(), reader.lines, reader.texts)
    except yaml.YAMLError as error:
        raise SpecError(NOT_YAML.ends(f"{name}{problem_of(error, MAX_DEPTH)}")) from error
    except SpecError:
        raise
    except (OverflowError, ValueError) as error:  # half of a surrogate pair; "\\UFFFFFFFF"
        raise SpecError(NOT_YAML.ends(f"{name}: not YAML: {shown(str(error))[:QUOTED]}")) from error


@dataclass(slots=True)
class _Reader:
    """Builds plain values from a parser's events."""

    events: Iterator[Any]
    name: str
    left: int  # of the values that there may be
    needs: str  # what an empty text lacks
    lines: dict[Location, int] = field(default_factory=dict)
    texts: dict[Location, str] = field(default_factory=dict)

    def error(self, line: int, text: str) -> SpecError:
        """What is wrong with a line."""
        return SpecError(f"{self.name}:{line}: {text}")

    def document(self) -> Any:
        """The only document's value."""
        next(self.events)  # the stream's start
        if not isinstance(next(self.events), yaml.DocumentStartEvent):
            raise self.error(1, EMPTY.ends(f"empty; {self.needs}"))
        first = next(self.events)
        if isinstance(first, yaml.ScalarEvent) and not first.value and first.implicit[0]:
            raise self.error(1, EMPTY.ends(f"empty; {self.needs}"))
        value = self._value(first, ())
        next(self.events)  # the document's end
        after = next(self.events)
        if isinstance(after, yaml.DocumentStartEvent):
            raise self.error(_line(after), NOT_YAML.ends("not YAML: but found another document; keep one"))
        return value

    def _value(self, event: Any, where: Location) -> Any:
        check()
        line = _line(event)
        self.lines.setdefault(where, line)
        self._refuse_the_exotic(event, line)
        if len(where) > MAX_DEPTH:
            raise self.error(line, TOO_LARGE.ends(too_deep(MAX_DEPTH)))
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(where)
        if isinstance(event, yaml.SequenceStartEvent):
            found: list[Any] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                found.append(self._value(event, (*where, len(found))))
            return found
        value = self._scalar(event, line)
        if isinstance(value, int | float):
            self.texts[where] = event.value
        return value

    def _mapping(self, where: Location) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line = _line(event)
            self._refuse_the_exotic(event, line)
            if not isinstance(event, yaml.ScalarEvent):
                raise self.error(line, NOT_YAML.ends("a key must be a plain word"))
            key = self._key(event.value, line)
            if key in found:
                raise self.error(line, NOT_YAML.ends(f"{key[:QUOTED]!r} is given twice; keep one of them"))
            self.lines[*where, key] = line
            found[key] = self._value(next(self.events), (*where, key))
        return found

    def _refuse_the_exotic(self, event: Any, line: int) -> None:
        """Aliases let a small file grow without bounds, tags make objects; specs need neither."""
        if isinstance(event, yaml.AliasEvent):
            raise self.error(line, NOT_YAML.ends(f"*{str(event.anchor)[:QUOTED]}: write the value out"))
        if event.tag:
            raise self.error(line, NOT_YAML.ends(f"the tag {shown(event.tag)[:QUOTED]!r}: leave it out"))
        self.left -= 1
        if self.left < 0:
            raise self.error(line, TOO_LARGE.ends("not a spec: too many values; shorten it"))

    def _scalar(self, event: Any, line: int) -> Any:
        text: str = event.value
        if event.implicit[0]:  # neither quoted nor a block
            if text in WORDS:
                return WORDS[text]
            if _NUMBER.fullmatch(text):
                if len(text) > MAX_NUMBER:
                    said = f"{text[:40]!r}... is no value: a number has at most {MAX_NUMBER} characters"
                    raise self.error(line, TOO_LARGE.ends(said))
                return int(text) if _WHOLE.fullmatch(text) else float(text)
        return text

    def _key(self, text: str, line: int) -> str:
        try:
            return plain(text)
        except ValueError as error:
            raise self.error(line, WRONG_KEY.ends(f"the key '{shown(text)[:QUOTED]}' {error}")) from error


def _line(event: Any) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
