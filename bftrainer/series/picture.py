"""A trainer's course in one picture: each figure over the steps, the samples or the time, and the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from bftrainer.series.points import Point, lasting, names
from bftrainer.traces.whole_file import save_figure

COLOURS = ("#1f6f8b", "#d1603d")
MOST = 30
"""Figures to draw, the first by name."""


class PlotOver(StrEnum):
    """The axis of figures. Time counts from the first report, the time without nodes included."""

    STEP = "step"
    SAMPLES = "samples"
    TIME = "time"


def draw(points: Sequence[Point], path: Path, title: str, over: PlotOver = PlotOver.STEP) -> int:
    """Draw points, without those that were trained again, into a file whose suffix says its format.

    Returns how many figures are left out.

    Raises:
        BftrainerError: the file cannot be written.
    """
    from matplotlib import rc_context  # noqa: PLC0415  slow, and only pictures need it
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = lasting(points)
    figures = names(shown)[:MOST]
    at, label = _places(shown, over)
    with rc_context({"text.parse_math": False, "axes.grid": True, "grid.color": "#E5E5E5"}):
        figure = Figure(figsize=(9, 2.2 * (len(figures) + 1)), layout="constrained")
        rows = list(figure.subplots(len(figures) + 1, sharex=True, squeeze=False)[:, 0])
        figure.suptitle(title)
        for row, name in zip(rows, figures, strict=False):
            given = [(x, p.metrics[name]) for x, p in zip(at, shown, strict=True) if name in p.metrics]
            _line(row, given, name)
        rows[-1].step(at, [p.nodes for p in shown], where="post", color=COLOURS[1])
        rows[-1].set(ylabel="nodes", xlabel=label, ylim=(0, None))
        save_figure(figure, path, "--plot")
    return len(names(shown)) - len(figures)


def _places(points: Sequence[Point], over: PlotOver) -> tuple[list[float], str]:
    """Positions of points along the picture, and their unit in words."""
    if over is PlotOver.TIME:
        return [(p.time - points[0].time) / 3600 for p in points], "hours"
    return [p.samples if over is PlotOver.SAMPLES else p.step for p in points], over.value


def _line(axes: Any, values: Sequence[tuple[float, float]], name: str) -> None:
    axes.plot([x for x, _ in values], [value for _, value in values], color=COLOURS[0])
    axes.set(ylabel=name if len(name) <= 24 else f"{name[:23]}…")
