"""Sources of settings: command line, environment, files, defaults."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bftrainer.messages.files.settings import WRONG_SETTING
from bftrainer.settings.client.given import PREFIX, SettingsError, files, from_environment, from_file
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.values import NO_VALUE, Settings

QUOTED = 200
"""Characters of a value that are repeated in a message, at most."""


def load(
    overrides: Mapping[str, Any], *, file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge the sources into settings.

    `overrides` are the command line's; its None values count as not given. `file` is read in place of the
    user's and the site's file. `environ` is the process's own by default.

    Raises:
        SettingsError: unknown names or impossible values, each with its source; an unreadable file.
    """
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, values in (
        *([from_file(file)] if file else files(environ)),
        (f"environment {PREFIX}*", from_environment(environ)),
        ("command line", {k: v for k, v in overrides.items() if v is not None}),
    ):
        for name, value in values.items():
            if name not in Settings.model_fields:
                raise SettingsError(WRONG_SETTING.ends(_unknown(source, name)))
            merged[name], sources[name] = value, source
    kind = SCHEDULERS.get(str(merged.get("scheduler", Settings.model_fields["scheduler"].default)))
    try:
        return Settings.model_validate({**(kind.defaults if kind else {}), **merged})
    except ValidationError as error:
        lines = [
            _explain(e["loc"], e["input"], e["msg"].removeprefix("Value error, "), sources)
            for e in error.errors()
            if e["type"] != "default_factory_not_called"  # it follows from another error
        ]
        raise SettingsError("\n".join(lines)) from error


def _explain(loc: tuple[int | str, ...], value: object, message: str, sources: Mapping[str, str]) -> str:
    if not loc:
        return WRONG_SETTING.ends(f"settings: {message}")
    name = str(loc[0])
    place = ".".join(str(part) for part in loc)
    word = f"; or give {NO_VALUE[name]!r}" if name in NO_VALUE else ""
    said = f"{message[:1].lower()}{message[1:]}{word}"
    return WRONG_SETTING.ends(f"{sources.get(name, 'settings')}: {place}: {_quoted(value)}: {said}")


def _quoted(value: object) -> str:
    """A value as messages quote it."""
    text = repr(value)
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}... ({len(text):,} characters)"


def files_of(file: Path | None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The files that `load` would read.

    Raises:
        SettingsError: one of them cannot be read.
    """
    environ = os.environ if environ is None else environ
    return (file,) if file else tuple(Path(source) for source, _ in files(environ))


def _unknown(source: str, name: str) -> str:
    given = f"{PREFIX}{name.upper()}" if source.startswith("environment") else name
    valid = list(Settings.model_fields)
    near = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"valid names: {', '.join(valid)}"
    return f"{source}: unknown setting {given!r}; {hint}"
