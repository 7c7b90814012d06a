"""Reads what `sudo -l` lists for the daemon's account, and finds what is more than its two commands."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from bftrainer.model.finding import Finding, wrong
from bftrainer.settings.schedulers import SchedulerKind
from bftrainer.state_dir.path_safety import ROOT_UID, danger

RULE = re.compile(r"^\s+\(([^)]*)\)\s+(.*)$", re.MULTILINE)
"""A rule as `sudo -l` lists it: as whom, and which commands."""
SEPARATOR = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A comma that is not in quotes."""
ESCAPED = re.compile(r"\\(.)")
TAG = re.compile(r"\b([A-Z_]+):\s*")
OPTION = re.compile(r"\b(?:ROLE|TYPE|CWD|CHROOT|TIMEOUT|NOTBEFORE|NOTAFTER|APPARMOR_PROFILE)=(\S+)\s*")
DIGEST = re.compile(r"\bsha(?:224|256|384|512):\S+?(?=[\s,])")
ENVIRONMENT = re.compile(r"!env_reset\b|(?<![\w!])setenv\b|env_keep\s*\+?=\s*\"?\*")
"""Settings of sudo that let the caller choose what the command finds in its environment."""
CHECK = "sudo rule"


def findings(listed: str, account: str, is_safe: Callable[[str], bool], kind: SchedulerKind) -> list[Finding]:
    """Check what `sudo -l` lists beyond the batch system's two commands, as whom beyond a group the account
    may run them, and which variables that they need it removes.

    `is_safe` tells whether nobody but root can change the program of a path.
    """
    found = []
    first, orders = RULE.search(listed), " and ".join(kind.orders)
    defaults = listed[: first.start()] if first else listed
    for word in ENVIRONMENT.findall(defaults):
        said = f"sudo has {word} for {account}, which can make other programs of {orders} so"
        names = ", ".join(kind.environ)
        found.append(wrong(CHECK, said, f"keep env_reset, with {names} in env_keep at most"))
    for name, without in kind.needed.items():
        if not re.search(rf"env_keep\s*\+?=[^,]*\b{name}\b", defaults):
            said = f"sudo does not leave {name} to {orders}: {without}"
            found.append(wrong(CHECK, said, f'add Defaults:{account} env_keep += "{name}"'))
    for whom, commands in RULE.findall(listed):
        if "SETENV" in TAG.findall(commands):
            said = f"{account} may choose the environment of {commands}"
            found.append(wrong(CHECK, said, "take the tag SETENV out of the rule"))
        if more := [word for word in commands_of(commands) if not _is_allowed(word, is_safe, kind)]:
            said = f"{account} may also run {', '.join(more)} as ({whom})"
            found.append(wrong(CHECK, said, f"allow {orders} only, each with its whole path"))
        if mighty := [word for word in _names(whom) if not _is_ordinary(word)]:
            said = f"{account} may run commands as {', '.join(mighty)}"
            found.append(wrong(CHECK, said, "name a group of users, such as (%trainers)"))
    return found


def commands_of(rule: str) -> list[str]:
    """The commands that a rule lists, without tags, options and digests. Pure.

    A root folder (CHROOT) stays: with it the path is another program.
    """
    bare = OPTION.sub(lambda found: found[0] if found[0].startswith("CHROOT") else "", rule)
    bare = DIGEST.sub("", f"{TAG.sub('', bare)} ")
    return [word.strip() for word in bare.split(",") if word.strip()]


def is_safe_program(path: str, used: Collection[str] = ()) -> bool:
    """Return whether only root can change a program and put another in its place, or only its owner if it is
    one of those that the daemon has `used`, as many sites have an owner for the batch system. One that is not
    there counts by its folder."""
    place = Path(path)
    try:
        found = (place if place.exists() else place.parent).stat()
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not (path in used or found.st_uid == ROOT_UID):
            return False
        return danger(place, None if path in used else ROOT_UID, strict=True, instead="") is None
    except OSError:
        return False


def _is_allowed(command: str, is_safe: Callable[[str], bool], kind: SchedulerKind) -> bool:
    path = command.split(" ", maxsplit=1)[0]
    return os.path.isabs(path) and Path(path).name in kind.orders and is_safe(path)  # noqa: PTH117


def _names(whom: str) -> list[str]:
    """The users and groups of a rule; it stands for each of them."""
    users, _, groups = whom.partition(":")
    found = [_bare(word) for word in SEPARATOR.split(users)]
    return list(
        dict.fromkeys(
            word for word in (*found, *(f"%{_bare(g)}" for g in SEPARATOR.split(groups))) if word != "%"
        )
    )


def _bare(word: str) -> str:
    """A name as the system has it: sudo lists one with a blank in quotes, and backslashes doubled there."""
    word = word.strip()
    if len(word) > 1 and word.startswith('"') and word.endswith('"'):
        return ESCAPED.sub(r"\1", word[1:-1])
    return word


def _is_ordinary(word: str) -> bool:
    """Return whether a name in a rule is of users of whom none is root."""
    name = word.lstrip("%")
    if word.startswith("!") or name == "ALL" or not name:
        return False
    if name.startswith("#"):
        return name[1:].isdecimal() and int(name[1:]) != ROOT_UID
    try:
        if not word.startswith("%"):
            return pwd.getpwnam(name).pw_uid != ROOT_UID
        group = grp.getgrnam(name)
        return group.gr_gid != ROOT_UID and "root" not in group.gr_mem
    except KeyError:
        return name != "root"
