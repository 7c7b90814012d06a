"""Values in the database that bftrainer has not written: one damaged row keeps no other from being read."""

from __future__ import annotations

import json
from typing import Any

from bftrainer.model.trainer import TrainerStatus


class DamagedError(ValueError):
    """A row holds what bftrainer would not have written."""


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


STATUSES = frozenset(status.value for status in TrainerStatus)
