"""Phases of workers that do not train yet, or no longer, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

MEMBER = "member"
"""The phase of a worker that trains."""


def phases(trainer: dict[str, Any]) -> str:
    """Count the workers of a trainer's row that do not train: "no worker 1, starting 2, ready 1".

    No worker: the trainer has the node, but no worker has been ordered there yet, because the pilot is still
    starting. Ready: the worker waits for the step boundary at which it becomes a member. Empty if all train.
    """
    workers: dict[str, str] = trainer["workers"]
    counts = Counter(phase for phase in workers.values() if phase != MEMBER)
    missing = len(set(trainer["nodes"]) - workers.keys())
    found = {"no worker": missing, "starting": counts.pop("starting", 0), **dict(sorted(counts.items()))}
    return ", ".join(f"{phase} {count}" for phase, count in found.items() if count)


class PhaseTimes:
    """Remembers since when each trainer's workers have been in the phases that they are in."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[str, float]] = {}

    def update(self, now_s: float, trainers: Iterable[dict[str, Any]]) -> bool:
        """Take in the rows of all trainers at one moment; return whether the phases of any have changed."""
        changed = False
        for trainer in trainers:
            text = phases(trainer)
            if self._since.get(trainer["id"], ("", now_s))[0] != text:
                changed = True
            elif trainer["id"] in self._since:
                continue
            self._since[trainer["id"]] = text, now_s
        return changed

    def text(self, trainer: dict[str, Any], now_s: float) -> str:
        """Return the phases and how long they have lasted: "starting 2, ready 1 for 4 s".

        Without the duration if that is below a second; empty if all workers train.
        """
        text, since = self._since.get(trainer["id"], ("", now_s))
        return f"{text} for {now_s - since:.0f} s" if text and now_s - since >= 1 else text
