"""The word that tells one daemon's pilots from those of other daemons in the same batch system."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import read_text

UNKNOWN = "INSTANCE"
"""Stands for the word where only the daemon knows it, or there is none yet."""


def instance(state_dir: Path, *, create: bool) -> str:
    """The word that is in the names of our pilots. The daemon creates it once; with `create` False, UNKNOWN
    stands for a word that does not exist or cannot be read.

    Raises:
        BftrainerError: it exists, and the daemon cannot read it.
    """
    path = state_dir / "instance"
    try:
        if re.fullmatch(r"[0-9a-f]{8}", found := read_text(path, most_kb=1).strip()):
            return found  # a full disk may have left only a part of it
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    except PermissionError as error:
        if create:
            raise BftrainerError(f"{path}: {error.strerror}; it is another user's daemon's") from error
    except OSError as error:
        if create:
            raise BftrainerError(f"{path}: {error.strerror or error}; remove it") from error
    if not create:
        return UNKNOWN
    made = secrets.token_hex(4)
    path.write_text(made, encoding="ascii")
    return made
