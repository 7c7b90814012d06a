"""Several replays: their main figures as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report.drawing import Picture, big, cut, render, styles


def comparison(replays: Sequence[ReportData]) -> Picture:
    """The main figures as bars."""
    figures: Sequence[tuple[str, str, Callable[[ReportData], float], Callable[[float], str]]] = (
        ("Efficiency U", "%", lambda r: 100 * r.figures["efficiency_u"], lambda v: f"{v:.1f} %"),
        ("Efficiency E", "%", lambda r: 100 * r.figures["linear_efficiency"], lambda v: f"{v:.1f} %"),
        ("Samples processed", "samples", lambda r: r.figures["samples"], big),
        ("Trainers completed", "trainers", lambda r: r.figures["completed"], lambda v: f"{v:,.0f}"),
        ("Lost by rescaling", "samples", lambda r: r.figures["rescale_samples"], big),
        ("Lost by preemption", "samples", lambda r: r.figures["preemption_samples"], big),
    )

    def draw(*grid: Axes) -> None:
        names = [cut(data.name) for data in replays]
        for i, (axes, (title, unit, value, shown)) in enumerate(zip(grid, figures, strict=True)):
            values = [value(data) for data in replays]
            colours = [style["color"] for style, _ in zip(styles(), replays, strict=False)]
            bars = axes.barh(range(len(replays)), values, color=colours)
            axes.bar_label(bars, [shown(v) for v in values], padding=3, fontsize=10)
            axes.set(title=title, xlabel=unit, xlim=(0, 1.3 * max(values) or 1.0))
            axes.set_yticks(range(len(replays)), names if i % 2 == 0 else [""] * len(replays), fontsize=10)
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.xaxis.set_major_formatter(FuncFormatter(big))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=unit != "%"))

    height = 3 * (1.1 + 0.3 * len(replays))
    caption = "The figures of the whole replays. Longer is better, but for the two kinds of loss."
    return render("comparison", "Comparison", caption, draw, height, rows=3, columns=2)
