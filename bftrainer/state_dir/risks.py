"""Risks of which a daemon warns at its start."""

from __future__ import annotations

from pathlib import Path

from bftrainer.state_dir.filesystem import mount_of
from bftrainer.state_dir.path_safety import ROOT_UID

OWN_ACCOUNT = "run it as an account of its own (User= in its unit)"


def in_memory(path: Path) -> str:
    """The loss when the machine restarts, if a folder is in memory; else empty.

    Raises:
        OSError: the path cannot be followed.
    """
    mount = mount_of(path)
    if mount is None or not mount.is_in_memory:
        return ""
    return (
        f"state_dir {path} is in memory ({mount.kind}, mounted at {mount.at}): when this machine "
        "starts anew, the daemon knows none of its trainers"
    )


def as_root(uid: int, *, site: bool) -> str:
    """The risk of a site's daemon that runs as this user, if that is root; else empty. Pure."""
    if uid != ROOT_UID or not site:
        return ""
    return "the daemon of a site runs as root: a fault in it gives an attacker the whole machine"


def risks(path: Path, uid: int, *, site: bool) -> list[str]:
    """A sentence about each risk of a daemon with this state directory and user, with what to do about it.

    Raises:
        OSError: the path cannot be followed.
    """
    remedies = {in_memory(path): "take a folder on a disk", as_root(uid, site=site): OWN_ACCOUNT}
    return [f"{said}; {remedy}" for said, remedy in remedies.items() if said]
