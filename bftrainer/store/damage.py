"""Values in the database that bftrainer has not written: one damaged row keeps no other from being read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from bftrainer.model.trainer import TrainerStatus


def object_of(text: str | bytes) -> dict[str, Any]:
    """The JSON object in a column; without any key where the column holds no such object."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def status_of(text: object) -> TrainerStatus:
    """A trainer's status; that it failed where the column holds none."""
    return TrainerStatus(text) if text in STATUSES else TrainerStatus.FAILED


def text_of(value: object) -> str:
    """The text in a column; empty where the column holds none."""
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float:
    """The number in a column; 0 where the column holds none."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else 0.0


def count_of(value: object) -> int | None:
    """The whole number in a column; None where the column holds none."""
    return value if type(value) is int else None


def figures_of(found: Mapping[str, Any]) -> Mapping[str, float]:
    """The numbers of an object of JSON; others are left out."""
    return {name: value for name, value in found.items() if type(value) in (int, float)}


STATUSES = frozenset(status.value for status in TrainerStatus)
