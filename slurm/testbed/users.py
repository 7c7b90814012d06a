"""Unix users of a testbed."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.testbeds.errors import TestbedError

NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
TRIES = 300
FOR_NOW = (1, 8, 10)
"""Exit codes of useradd and userdel when somebody else changes /etc/passwd or (10) /etc/group now, or (8)
that a process of the user is still there."""


def make(names: Iterable[str]) -> tuple[str, ...]:
    """Make those that are not there; returns these.

    Raises:
        TestbedError: a name is none, or useradd refuses.
    """
    return tuple(name for name in names if _make(name))


def _make(name: str) -> bool:
    if not NAME.fullmatch(name):
        raise TestbedError(f"user {name!r}: use small letters, digits, - and _")
    try:
        pwd.getpwnam(name)
    except KeyError:
        _repeat(["useradd", "--create-home", "--shell", "/bin/bash", name])
        return True
    return False


def remove(names: Iterable[str]) -> None:
    """Remove users that `make` made, with their homes.

    Raises:
        TestbedError: userdel refuses: one of them still runs something.
    """
    for name in names:
        _repeat(["userdel", "--remove", name])


def _repeat(command: list[str]) -> None:
    for _ in range(TRIES):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if done.returncode not in FOR_NOW:
            break
        time.sleep(0.1)
    raise TestbedError(f"{' '.join(command)}: {done.stderr.strip()}")


def identity(name: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Options of `subprocess.run` for a command of a user, in that user's home.

    Raises:
        TestbedError: there is no such user.
    """
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise TestbedError(f"no user {name!r}; have the testbed make it") from None
    return {
        "user": entry.pw_uid,
        "group": entry.pw_gid,
        "extra_groups": os.getgrouplist(name, entry.pw_gid),
        "cwd": entry.pw_dir,
        "env": {**env, "HOME": entry.pw_dir, "USER": name, "LOGNAME": name},
    }
