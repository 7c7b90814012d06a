"""Trainers as rows of a table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from bftrainer.cli.shared.figures import brief_moment, figures, speed, whole
from bftrainer.cli.shared.trainers.worker_phases import phases
from bftrainer.cli.shared.units import units
from bftrainer.model.text import duration

COLUMNS = (
    "id",
    "name",
    "status",
    "nodes",
    "workers",
    "step",
    "samples",
    "done",
    "left",
    "samples/s",
    "metrics",
    "submitted",
    "took",
)
TIMES = ("submitted", "took")

WARNED = "(!)"
"""Beside the status of a trainer whose script has been warned of something."""

METRICS = 4
"""So many metrics of a trainer are listed, those of the shortest names; show has all."""


def columns(trainers: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return COLUMNS, with what trainers really have: nodes or GPUs."""
    counted = units(trainers[0]) if trainers else "nodes"
    return tuple(counted if column == "nodes" else column for column in COLUMNS)


def row(t: dict[str, Any]) -> tuple[object, ...]:
    """Return a trainer's row of the API as cells of COLUMNS."""
    nodes = f"{len(t['members'])}" + (
        f" (of {len(t['nodes'])})" if len(t["nodes"]) > len(t["members"]) else ""
    )
    now = time.time()
    return (
        t["id"],
        t["name"],
        f"{t['status']} {WARNED}" if t.get("warned") else t["status"],
        nodes,
        phases(t) or None,
        whole(t["step"]),
        whole(t["samples"]),
        f"{t['samples'] / t['work']:.0%}" if t["work"] else None,
        left(t.get("ends_in_s")) or None,
        speed(t["rate"]),
        _few(t["metrics"]),
        brief_moment(t["submitted_at"], now),
        duration(max(0.0, (t["ended_at"] or now) - t["submitted_at"])),
    )


def _few(metrics: Mapping[str, float]) -> str:
    """The metrics of the shortest names, loss first: others are often parts of these."""
    names = sorted(metrics, key=lambda name: (name != "loss", len(name), name))
    rest = f" and {len(names) - METRICS} more" if len(names) > METRICS else ""
    return figures({name: metrics[name] for name in names[:METRICS]}) + rest


def left(ends: dict[str, float | None] | None) -> str:
    """Return how long a trainer still takes: "12 min to 1.5 h", at its speed now and on average."""
    spans = [s for s in ((ends or {}).get("likely"), (ends or {}).get("late")) if s is not None]
    return " to ".join(dict.fromkeys(duration(seconds) for seconds in spans))
