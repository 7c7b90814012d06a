"""The storage of Optuna that a study names: its URL checked, and told without its password. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from bftrainer.messages.files.studies import STORAGE_URL
from bftrainer.model.text import plain

SERVERS = ("postgresql", "mysql", "mariadb")
MOST = 1000
"""Characters of a URL."""


def checked(url: str, base: Path) -> str:
    """The URL of a storage; the path of a file of SQLite starts at `base`, and is whole in what is returned.

    Raises:
        ValueError: it is not one; the text says what to give.
    """
    if len(url) > MOST:
        raise ValueError(
            STORAGE_URL.say(given=url[:40], why=f"... has {len(url):,} characters, at most {MOST:,}")
        )
    plain(url)
    scheme, between, rest = url.partition("://")
    if not between:
        raise ValueError(STORAGE_URL.say(given=shown(url)[:60], why=" is no URL of a storage"))
    kind = scheme.partition("+")[0]
    if kind in SERVERS:
        return url
    if kind != "sqlite":
        raise ValueError(STORAGE_URL.say(given=kind[:40], why=" is no database that Optuna stores in"))
    if not rest.startswith("/") or rest.endswith("/") or "?" in rest or rest == "/:memory:":
        raise ValueError(STORAGE_URL.say(given=url[:60], why=" names no file"))
    return f"{scheme}:///{base / rest[1:]}"


def file_of(url: str) -> Path | None:
    """The file of a checked URL; None: it is on a server."""
    return Path(url.partition(":///")[2]) if url.startswith("sqlite") else None


def shown(url: str) -> str:
    """The URL without its password, up to as long as one may be: matching takes longer than in proportion."""
    return re.sub(r"(://[^/@:]*):[^@]*@", r"\1:***@", url[:MOST])
