"""YAML from untrusted users, with the line of every value. Aliases, tags and deep nesting are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from bftrainer.errors import BftrainerError
from bftrainer.messages.specs import EMPTY, TOO_LARGE
from bftrainer.threads import check
from bftrainer.yaml_files import LOADER, Location, YamlFileError, YamlReader, parsed

FAST = LOADER is not yaml.SafeLoader
"""True if the loader is libyaml's."""
MAX_DEPTH = 16


class SpecError(BftrainerError, ValueError):
    """Everything that is wrong with a spec, one line each: `file:line: where: what; remedy`."""


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """Bounds on a YAML text: kB (1000 bytes), and values, keys included."""

    kb: int
    values: int


SPEC = YamlLimits(kb=32, values=1024)
"""One spec, of anybody. A daemon keeps those of thousands in memory, where a short value takes 100 bytes."""
STUDY = YamlLimits(kb=32, values=4096)
"""One file of a study or of an experiment."""
SPECS = YamlLimits(kb=16_000, values=2**22)
"""A list of specs, which only its user's own processes read."""

NEEDS = "a spec needs at least name, command and nodes"
"""The message on an empty text, where it should have a spec."""


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
    reader = YamlReader(name, MAX_DEPTH, bounds.values, bounds.kb, check=check)
    try:
        size = len(text.encode(errors="surrogatepass"))
        if size > bounds.kb * 1000:
            raise SpecError(
                TOO_LARGE.ends(f"{name}: {size} bytes; a spec has at most {bounds.kb} kB: shorten it")
            )
        value = parsed(text, reader)
    except YamlFileError as error:
        raise SpecError(error.refusal.ends(str(error))) from error
    if value is None:
        raise SpecError(EMPTY.ends(f"{name}:1: empty; {needs}"))
    return Document(name, value, reader.lines, reader.texts)
