"""Findings of a check of a site's set-up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Grade of a finding."""

    OK = "ok"
    WARNING = "warning"
    """It works, with a cost or a risk."""
    WRONG = "wrong"
    """It cannot work so, or is not safe."""
    NOT_CHECKED = "not checked"
    """It could not be found out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: what was found, and what to do about it; "" where that is nothing."""

    check: str
    level: Level
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """All is as it should be."""
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """It works, with a cost or a risk."""
    return Finding(check, Level.WARNING, found, remedy)


def wrong(check: str, found: str, remedy: str) -> Finding:
    """It cannot work so, or is not safe."""
    return Finding(check, Level.WRONG, found, remedy)


def not_checked(check: str, why: str, remedy: str = "") -> Finding:
    """It could not be found out."""
    return Finding(check, Level.NOT_CHECKED, why, remedy)
