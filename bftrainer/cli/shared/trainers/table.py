"""Trainers as rows of a table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from bftrainer.cli.shared.figures import brief_moment, figures, speed, whole
from bftrainer.cli.shared.trainers.worker_phases import phases
from bftrainer.cli.shared.units import units
from bftrainer.model.text import duration

WARNED = "(!)"
"""Beside the status of a trainer whose script has been warned of something."""

METRICS = 4
"""Metrics of a trainer that are listed, those of the shortest names; show has all."""
REASON = 40
"""Characters of a reason in a table, at most; show and queue -v have all."""


def _likely(t: Mapping[str, Any]) -> float:
    likely = (t.get("ends_in_s") or {}).get("likely")
    return math.inf if likely is None else likely


Cell = Callable[[dict[str, Any], float], object]
"""Gives a column's value from a trainer's row of the API, now (Unix seconds)."""

COLUMNS: Mapping[str, Cell] = {
    "id": lambda t, now: t["id"],
    "name": lambda t, now: t["name"],
    "user": lambda t, now: t["user"],
    "state": lambda t, now: f"{t['status']} {WARNED}" if t.get("warned") else t["status"],
    "nodes": lambda t, now: _nodes(t),
    "time": lambda t, now: duration(max(0.0, (t["ended_at"] or now) - t["submitted_at"])),
    "left": lambda t, now: left(t.get("ends_in_s")) or None,
    "reason": lambda t, now: brief(_reason(t)) or None,
    "workers": lambda t, now: phases(t) or None,
    "step": lambda t, now: whole(t["step"]),
    "samples": lambda t, now: whole(t["samples"]),
    "done": lambda t, now: f"{t['samples'] / t['work']:.0%}" if t["work"] else None,
    "samples/s": lambda t, now: speed(t["rate"]),
    "metrics": lambda t, now: _few(t["metrics"]),
    "submitted": lambda t, now: brief_moment(t["submitted_at"], now),
    "priority": lambda t, now: f"{t.get('priority') or 1.0:g}",
}
"""The columns that a list can have. Time: from submit to the end, or until now."""
USUAL = ("id", "name", "user", "state", "nodes", "time", "left", "reason")
"""Those that it has unless it is asked for others; as squeue's, where these are known."""
NUMBERS = frozenset({"id", "nodes", "step", "samples", "done", "samples/s", "priority"})
ORDERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    **{name: itemgetter(name) for name in ("id", "name", "user", "step", "samples")},
    "state": itemgetter("status"),
    "nodes": lambda t: len(t["members"]),
    "time": lambda t: (t["ended_at"] or time.time()) - t["submitted_at"],
    "left": _likely,
    "done": lambda t: t["samples"] / t["work"] if t["work"] else -1.0,
    "samples/s": lambda t: t["rate"] or 0.0,
    "submitted": itemgetter("submitted_at"),
    "priority": lambda t: t.get("priority") or 1.0,
}
"""The columns by which a list can be sorted, and what is compared."""
STYLES = {"running": "green", "starting": "yellow", "failed": "red", "completed": "dim", "cancelled": "dim"}
"""The colours of states, where there is a terminal."""


def header(column: str, trainers: Sequence[dict[str, Any]]) -> str:
    """Return a column's heading; NODES is GPUS where trainers have these."""
    counted = units(trainers[0]) if trainers else "nodes"
    return (counted if column == "nodes" else column).upper()


def rows(trainers: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[tuple[object, ...]]:
    """Return trainers' rows of the API as cells of some of COLUMNS."""
    now = time.time()
    return [tuple(COLUMNS[column](t, now) for column in columns) for t in trainers]


def brief(reason: str) -> str:
    """Return a reason's first part, cut to `REASON` characters: what follows a colon explains it."""
    first = reason.partition(": ")[0].partition("; ")[0]
    return first if len(first) <= REASON else f"{first[: REASON - 1]}…"


def _reason(t: dict[str, Any]) -> str:
    """Return why a trainer waits or has not done its work, or else what its workers do, or its note."""
    if t["status"] == "completed":
        return ""
    works = t["ended_at"] is None and t["status"] != "waiting"
    return str((works and phases(t)) or t.get("reason") or t.get("note") or "")


def _nodes(t: Mapping[str, Any]) -> str:
    more = f" (of {len(t['nodes'])})" if len(t["nodes"]) > len(t["members"]) else ""
    return f"{len(t['members'])}{more}"


def _few(metrics: Mapping[str, float | None]) -> str:
    """The metrics of the shortest names, loss first: others are often parts of these."""
    names = sorted(metrics, key=lambda name: (name != "loss", len(name), name))
    rest = f" and {len(names) - METRICS} more" if len(names) > METRICS else ""
    return figures({name: metrics[name] for name in names[:METRICS]}) + rest


def left(ends: dict[str, float | None] | None) -> str:
    """Return how long a trainer still takes: "12 min to 1.5 h", at its speed now and on average."""
    spans = [s for s in ((ends or {}).get("likely"), (ends or {}).get("late")) if s is not None]
    texts = list(dict.fromkeys(duration(seconds) for seconds in spans))
    if len({text.partition(" ")[2] for text in texts}) == 1:  # "12 to 15 min"
        texts[:-1] = [text.partition(" ")[0] for text in texts[:-1]]
    return " to ".join(texts)
