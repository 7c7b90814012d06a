"""Checks that Slurm shows us all users' jobs and nodes. squeue silently omits the jobs that PrivateData
hides, and we would never give nodes up for main jobs that we do not see. Pure.
"""

from __future__ import annotations

import re

from bftrainer.schedulers.shared.text import TextError

NEEDED = ("jobs", "nodes", "partitions")
"""The words of PrivateData that hide what we need; "all" stands for all of them."""
SEES_ALL = frozenset({"Operator", "Administrator"})
"""Levels, as sacctmgr has them, from which nothing is hidden."""


def hidden(config: str, uid: int) -> tuple[str, ...]:
    """Return what is hidden from an account without a level, by what `scontrol show config` printed; () from
    root and Slurm's own user.

    Raises:
        TextError: it does not say.
    """
    private = re.search(r"^PrivateData\s*=\s*(\S+)", config, re.MULTILINE)
    if not private:
        raise TextError("scontrol showed no configuration")
    if is_slurms_own(config, uid):
        return ()
    words = private[1].lower().split(",")
    return NEEDED if "all" in words else tuple(word for word in NEEDED if word in words)


def is_slurms_own(config: str, uid: int) -> bool:
    """Return whether an account is root or Slurm's own user, which may see and end all users' jobs."""
    user = re.search(r"^SlurmUser\s*=.*\((\d+)\)", config, re.MULTILINE)
    return uid == 0 or (user is not None and uid == int(user[1]))


def federated(shown: str) -> str:
    """The name of our cluster, by what `scontrol show federation` printed; "" if it is in no federation."""
    own = re.search(r"^Self:\s*([^:\s]+):", shown, re.MULTILINE)
    return own[1] if own else ""


def complaint(what: tuple[str, ...], user: str, unknown: str) -> str:
    """Return why nothing can be held, and the remedy; `unknown`: why the user's level is not known."""
    asked = f" (whether that was done cannot be asked: {unknown})" if unknown else ""
    return (
        f"PrivateData={','.join(what)} hides from {user} what main jobs wait for, so no node is held; "
        f"change that or make it an operator: sacctmgr modify user {user} set adminlevel=operator{asked}"
    )
