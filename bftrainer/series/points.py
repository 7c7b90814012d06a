"""A trainer's course as points: what each stored report says. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bftrainer.model.text import cell

FIXED = ("time", "step", "samples", "nodes", "samples_per_s")
"""The first columns of a CSV file; those of the trainer's own figures follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One report: at `time` (Unix seconds) the trainer's progress, on `nodes` nodes.

    `metrics` has the latest value of each figure that its script reports by then.
    """

    time: float
    step: int
    samples: int
    nodes: int
    rate: float | None
    metrics: Mapping[str, float]


def points_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Point, ...]:
    """The points in the API's rows of reports, in the order of the rows."""
    return tuple(
        Point(
            time=row["time"],
            step=row["step"],
            samples=row["samples"],
            nodes=row["size"],
            rate=row["rate"],
            metrics={k: math.nan if v is None else v for k, v in row["metrics"].items()},
        )
        for row in rows
    )


def lasting(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points without those that were trained again: where a trainer goes on from a checkpoint, the later
    point of a step counts. Their steps grow."""
    kept = list[Point]()
    for point in points:
        while kept and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return tuple(kept)


def names(points: Iterable[Point]) -> tuple[str, ...]:
    """The names of all figures, sorted."""
    return tuple(sorted({name for point in points for name in point.metrics}))


def as_csv(points: Sequence[Point]) -> str:
    """All points as the text of a CSV file: a line each, times in UTC as ISO 8601.

    A figure that is called as one of the FIXED columns gets "metric." before its name.
    """
    figures = names(points)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*FIXED, *(f"metric.{name}" if name in FIXED else cell(name) for name in figures)))
    for point in points:
        time = datetime.fromtimestamp(point.time, UTC).isoformat(timespec="milliseconds")
        own = (point.metrics.get(name) for name in figures)
        writer.writerow((time, point.step, point.samples, point.nodes, point.rate, *own))
    return text.getvalue()
