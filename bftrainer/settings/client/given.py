"""Settings as they are given: by files and by the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.places import UNREADABLE

PREFIX = "BFTRAINER_"
SITE_VARIABLE = "BFTRAINER_SITE_CONFIG"
"""Names the site's file where it is not in its usual place."""
NO_SETTINGS = frozenset({"BFTRAINER_WORKER", SITE_VARIABLE})
"""Variables with our prefix that are no settings: what agents are told, what they tell their workers, and
where the site's file is."""
SITE_FILE = "/etc/bftrainer/config.yaml"
MOST_KB = 1000
"""A file with settings is no larger."""


class SettingsError(BftrainerError, ValueError):
    """A setting that does not exist, or an impossible value. The message names the source of the value."""


def site_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the site's file, which may not exist."""
    return Path(environ.get(SITE_VARIABLE, SITE_FILE))


def files(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The site's and the user's file, where they exist; later ones override earlier ones.

    Raises:
        SettingsError: as `from_file`.
    """
    own = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bftrainer" / "config.yaml"
    found = [from_file(own)] if os.access(own, os.F_OK) else []
    site = site_file(environ)
    if os.access(site, os.F_OK) and not any(values.get("mode") == "single" for _, values in found):
        found.insert(0, from_file(site))
    return found


def from_file(path: Path) -> tuple[str, dict[str, Any]]:
    """The values of a file, with its name.

    Raises:
        SettingsError: it cannot be read, or has no names and values.
    """
    from bftrainer.yaml_files import YamlFileError, read_yaml  # noqa: PLC0415  often there is no file

    try:
        values = read_yaml(path, MOST_KB)
    except YamlFileError as error:
        raise SettingsError(UNREADABLE.ends(str(error))) from error
    if values is None:
        return str(path), {}
    if not isinstance(values, dict):
        said = f"{path}: expected lines of 'name: value', got {type(values).__name__}"
        raise SettingsError(UNREADABLE.ends(said))
    return str(path), {str(name): value for name, value in values.items()}


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The values of the environment, by the settings' names."""
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in NO_SETTINGS
    }
