"""The word that tells one daemon's pilots from those of other daemons in the same batch system."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import private_file, read_text
from bftrainer.messages.commands.running import INSTANCE
from bftrainer.model.gpus import node_of

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
            raise BftrainerError(INSTANCE.say(path=path, why=error.strerror)) from error
    except OSError as error:
        if create:
            raise BftrainerError(INSTANCE.say(path=path, why=error.strerror or error)) from error
    if not create:
        return UNKNOWN
    made = secrets.token_hex(4)
    with os.fdopen(private_file(path, append=False), "w", encoding="ascii") as file:
        file.truncate()
        file.write(made)
    return made


PREFIX = "bftrainer-"
TAG = re.compile(r"[0-9a-f]{32}")
NAME = re.compile(rf"{PREFIX}[0-9a-f]{{8}}-{TAG.pattern}(?::[0-9]{{1,4}})?")
"""The names of pilots, of any daemon: every other job is a main job. That of a pilot with one GPU of a node
ends in the GPU's number."""


def job_name(instance: str, tag: str, node: str = "") -> str:
    """The name of a daemon's pilot on this node, or with this GPU of one."""
    return f"{PREFIX}{instance}-{tag}{node.removeprefix(node_of(node))}"
