"""Single values as Slurm's commands print them: numbers, times, memory, lists of nodes. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from bftrainer import nodesets
from bftrainer.schedulers.shared.text import TextError

NOTHING = frozenset({"", "(null)", "N/A", "none"})
"""Texts that stand for no value."""


def plain(text: str) -> str:
    """A text, empty where it stands for no value."""
    return "" if text in NOTHING else text


@lru_cache(maxsize=4096)
def words(text: str) -> tuple[str, ...]:
    """The words of a,b,c."""
    return () if text in NOTHING else tuple(text.split(","))


@lru_cache(maxsize=4096)
def count(text: str) -> int:
    """Parse a number as Slurm prints it: 2048 is 2K; return 0 for any other text."""
    match = re.match(r"([0-9]{1,15})([KM]?)", text)
    return int(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]] if match else 0


def moment(text: str) -> float | None:
    """A time in seconds since the Unix epoch; None for N/A and the like."""
    return float(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


@lru_cache(maxsize=4096)
def megabytes(text: str) -> int:
    """Memory as squeue prints it: 100M, 4G, 1.5T; without a letter it is MB."""
    match = re.match(r"([0-9.]{1,20})([KMGTP]?)", text)
    if not match:
        return 0
    unit = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[match[2]]
    try:
        return int(float(match[1]) * unit)
    except ValueError:
        return 0


@lru_cache(maxsize=4096)
def duration_s(text: str) -> float | None:
    """Slurm's [days-][hours:]minutes:seconds in seconds; None for UNLIMITED and what is no duration."""
    number = "([0-9]{1,9})"
    match = re.fullmatch(rf"(?:{number}-)?(?:{number}:)?{number}:{number}", text)
    if not match:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def tasks(identity: str) -> int:
    """Return how many tasks `12_[1-5,8%2]` stands for: as many as may run at once."""
    if "_[" not in identity:
        return 1
    listed, _, most = identity.partition("_[")[2].rstrip("]").partition("%")
    total = 0
    for part in listed.split(","):
        bounds = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", part)
        if bounds:
            first, last, step = int(bounds[1]), int(bounds[2] or bounds[1]), int(bounds[3] or 1)
            total += max(0, last - first) // max(step, 1) + 1
    return max(1, min(total, count(most) or total))


@lru_cache(maxsize=1024)
def expand(text: str) -> tuple[str, ...]:
    """The nodes of Slurm's short form: rack[1-2]n[01-03],gpu7.

    Raises:
        TextError: it cannot be read, or is longer than any list.
    """
    try:
        return nodesets.expand(text) if text not in NOTHING else ()
    except ValueError as error:
        raise TextError(str(error)) from error


@lru_cache(maxsize=64)  # each may have all nodes of the machine
def names(text: str) -> frozenset[str] | None:
    """The nodes of a list that a user wrote; None if it cannot be read."""
    try:
        return frozenset(expand.__wrapped__(text))
    except TextError:
        return None
