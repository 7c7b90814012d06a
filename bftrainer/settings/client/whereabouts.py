"""Finds the daemon that a user's command talks to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.settings.client.given import files, from_environment, from_file, site_file
from bftrainer.settings.client.places import MUNGE_SOCKET, SOCKET, default_state_dir, whole_path

SERVER = re.compile(r".+:[0-9]{1,5}")
NAMES = frozenset({"state_dir", "socket", "server", "munge_socket"})
"""The settings that say where the daemon is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The settings that a command needs to find the daemon: as the settings of these names."""

    state_dir: Path
    socket: Path
    server: str | None
    munge_socket: Path


def found(
    state_dir: str | None, file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Whereabouts:
    """Return the daemon's whereabouts, from the sources that `settings.sources.load` reads.

    The site's other settings are the daemon's to check. The user's are all checked, as is whatever is odd.

    Raises:
        SettingsError: as `settings.sources.load`.
    """
    environ = os.environ if environ is None else environ
    sources = [from_file(file)] if file else files(environ)
    own = [values for source, values in sources if file or source != str(site_file(environ))]
    own.append(from_environment(environ))
    merged: dict[str, Any] = {}
    for values in (
        *(values for _, values in sources),
        own[-1],
        {"state_dir": state_dir} if state_dir else {},
    ):
        merged |= {name: value for name, value in values.items() if name in NAMES}
    if any(values.keys() - NAMES for values in own) or not all(map(_plain, merged.items())):
        return _loaded(state_dir, file, environ)
    folder = whole_path(merged.get("state_dir", default_state_dir()))
    return Whereabouts(
        state_dir=folder,
        socket=whole_path(merged.get("socket", folder / SOCKET)),
        server=merged.get("server"),
        munge_socket=whole_path(merged.get("munge_socket", MUNGE_SOCKET)),
    )


def _plain(setting: tuple[str, object]) -> bool:
    """Return whether a value is certainly a possible one."""
    name, value = setting
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        return False
    if name == "server":
        return bool(SERVER.fullmatch(value))
    return not value.startswith("~") or value.startswith("~/")


def _loaded(state_dir: str | None, file: Path | None, environ: Mapping[str, str]) -> Whereabouts:
    """The same, from all settings."""
    from bftrainer.settings.sources import load  # noqa: PLC0415  slow, and seldom needed

    settings = load({"state_dir": state_dir}, file=file, environ=environ)
    return Whereabouts(
        state_dir=settings.state_dir,
        socket=settings.socket,
        server=settings.server,
        munge_socket=settings.munge_socket,
    )
