"""Sources of settings: command line, environment, files, defaults."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.setting import SettingsError
from bftrainer.settings.values import NO_VALUE, Settings
from bftrainer.yaml_files import YamlFileError, read_yaml

PREFIX = "BFTRAINER_"
SITE_VARIABLE = "BFTRAINER_SITE_CONFIG"
"""Names the site's file where it is not in its usual place."""
NO_SETTINGS = frozenset({"BFTRAINER_WORKER", SITE_VARIABLE})
"""Variables with our prefix that are no settings: what agents are told, what they tell their workers, and
where the site's file is."""
SITE_FILE = "/etc/bftrainer/config.yaml"
MOST_KB = 1000
"""A file with settings is no larger."""
QUOTED = 200
"""So many characters of a value are repeated in a message."""


FIXED = (
    "max_trials_at_once max_study_mb max_specs_waiting max_specs_waiting_per_user max_work_s "
    "max_connections_per_user max_request_kb request_timeout_s user_lookup_timeout_s max_newcomers "
    "max_metrics max_message_kb max_messages_per_second max_unsent_kb max_listed max_answer_mb "
    "max_answers_waiting_mb max_received_mb answer_timeout_s max_reads_waiting read_timeout_s "
    "max_metrics_series max_main_starts max_writes_waiting keep_reports_every_s min_free_files "
    "max_log_lines_per_minute max_log_kb_per_minute max_helper_connections "
)
"""Bounds that were settings before 0.9.0 and are constants now."""


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
        *([_from_file(file)] if file else _files(environ)),
        (f"environment {PREFIX}*", _from_environment(environ)),
        ("command line", {k: v for k, v in overrides.items() if v is not None}),
    ):
        for name, value in values.items():
            if name not in Settings.model_fields:
                raise SettingsError(_unknown(source, name))
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
        return f"settings: {message}"
    name = str(loc[0])
    place = ".".join(str(part) for part in loc)
    word = f"; or give {NO_VALUE[name]!r}" if name in NO_VALUE else ""
    said = f"{message[:1].lower()}{message[1:]}{word}"
    return f"{sources.get(name, 'settings')}: {place}: {_quoted(value)}: {said}"


def _quoted(value: object) -> str:
    """A value as messages quote it."""
    text = repr(value)
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}... ({len(text):,} characters)"


def _files(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The site's and the user's file, where they exist; later ones override earlier ones."""
    own = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bftrainer" / "config.yaml"
    found = [_from_file(own)] if os.access(own, os.F_OK) else []
    site = Path(environ.get(SITE_VARIABLE, SITE_FILE))
    if os.access(site, os.F_OK) and not any(values.get("mode") == "single" for _, values in found):
        found.insert(0, _from_file(site))
    return found


def files_of(file: Path | None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The files that `load` would read.

    Raises:
        SettingsError: one of them cannot be read.
    """
    environ = os.environ if environ is None else environ
    return (file,) if file else tuple(Path(source) for source, _ in _files(environ))


def _from_file(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        values = read_yaml(path, MOST_KB)
    except YamlFileError as error:
        raise SettingsError(str(error)) from error
    if values is None:
        return str(path), {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: expected lines of 'name: value', got {type(values).__name__}")
    return str(path), {str(name): value for name, value in values.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in NO_SETTINGS
    }


def _unknown(source: str, name: str) -> str:
    given = f"{PREFIX}{name.upper()}" if source.startswith("environment") else name
    if name.lower() in FIXED.split():
        return f"{source}: {given!r} is no setting any more: this bound is fixed; take it out"
    valid = list(Settings.model_fields)
    near = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"valid names: {', '.join(valid)}"
    return f"{source}: unknown setting {given!r}; {hint}"
