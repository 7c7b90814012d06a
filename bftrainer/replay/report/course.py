"""Several replays over time: efficiency, and what rescaling and preemption cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter

from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report.drawing import (
    HOUR_S,
    Picture,
    big,
    cut,
    legend_height,
    legend_on_top,
    longest,
    render,
    styles,
    time_unit,
)


def efficiency(replays: Sequence[ReportData]) -> Picture:
    """U and E over time, one line per replay."""
    scale, unit = time_unit(replays)
    window = window_words(replays)

    def draw(upper: Axes, lower: Axes) -> None:
        upper.axhline(1, color="black", linewidth=1, zorder=1)
        for axes, key in ((upper, "efficiency_u"), (lower, "linear_efficiency")):
            for data, style in zip(replays, styles(), strict=False):
                _steps(axes, data, _shares(data, key), scale, style, _efficiencies(data))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.set(xlim=(0, longest(replays) / scale), ylim=(0, 1.05 * max(axes.dataLim.y1, 0.01)))
        upper.set_title("U: samples processed, of what as many dedicated nodes would have processed")
        upper.set_ylabel(f"U per {window}")
        lower.set_title(
            "E: samples processed, of what single nodes without any overhead would have processed"
        )
        lower.set(ylabel=f"E per {window}", xlabel=f"time since the beginning ({unit})")
        legend_on_top(upper)

    caption = (
        "100 % in U would be the yield of a machine of the pool's mean size without any disturbance: what is "
        "missing was lost by rescaling, by nodes that left, and because the pool's size swings. E "
        "also counts what training on many nodes loses against single ones. Above 100 % in U: most "
        "nodes came when trainers did. A gap: no node was idle. In the legend: the whole replay."
    )
    return render(
        "efficiency",
        f"Efficiency per {window}",
        caption,
        draw,
        6.2 + legend_height(map(_efficiencies, replays)),
        rows=2,
    )


def costs(replays: Sequence[ReportData]) -> Picture:
    """Costs of rescaling and preemption over time, one line per replay."""
    scale, unit = time_unit(replays)

    def draw(upper: Axes, lower: Axes) -> None:
        for axes, key in ((upper, "rescale_samples"), (lower, "preemption_samples")):
            for data, style in zip(replays, styles(), strict=False):
                values = [getattr(w, key) / (w.end - w.begin) * HOUR_S for w in data.windows]
                _steps(axes, data, values, scale, style, _losses(data))
            axes.yaxis.set_major_formatter(FuncFormatter(big))
            axes.set(ylabel="samples per hour", xlim=(0, longest(replays) / scale), ylim=(0, None))
        upper.set_title("Lost by rescales that were decided")
        lower.set_title("Lost because nodes were taken away")
        lower.set_xlabel(f"time since the beginning ({unit})")
        legend_on_top(upper)

    caption = (
        "Samples that trainers would have processed while they stood still, at the speed that they had "
        "before. Decided rescales are an investment that is to pay off; nodes taken away by the main "
        f"scheduler are outside of our control. Means over {window_words(replays)}; in the legend: the "
        "whole replay."
    )
    return render(
        "costs",
        "Cost of rescaling and preemption",
        caption,
        draw,
        6.2 + legend_height(map(_losses, replays)),
        rows=2,
    )


def _steps(
    axes: Axes, data: ReportData, values: Sequence[float], scale: float, style: dict[str, Any], label: str
) -> None:
    """One value per window, as a line with steps."""
    edges = [data.windows[0].begin, *(window.end for window in data.windows)]
    axes.stairs(values, [edge / scale for edge in edges], label=label, linewidth=2, baseline=None, **style)


def _shares(data: ReportData, key: str) -> list[float]:
    """U or E of each window: 0 where there were nodes and nothing to train, NaN where there were none."""
    found = []
    for window in data.windows:
        value = getattr(window, key)
        found.append(value if value is not None else 0.0 if window.nodes else np.nan)
    return found


def _efficiencies(data: ReportData) -> str:
    """The label of a replay in the legend of `efficiency`."""
    figures = data.figures
    return f"{cut(data.name)}: U {figures['efficiency_u']:.1%}, E {figures['linear_efficiency']:.1%}"


def _losses(data: ReportData) -> str:
    """The label of a replay in the legend of `costs`."""
    decided, taken = (big(data.figures[f"{kind}_samples"]) for kind in ("rescale", "preemption"))
    return f"{cut(data.name)}: {decided} samples by rescales, {taken} by nodes taken away"


def window_words(replays: Sequence[ReportData]) -> str:
    """Length of the windows, in words; the last one of a replay may be shorter."""
    spans = sorted({data.windows[0].end - data.windows[0].begin for data in replays})
    unit, word = (HOUR_S, "hours") if spans[0] >= HOUR_S else (60.0, "minutes")
    return " to ".join(f"{span / unit:.3g}" for span in dict.fromkeys((spans[0], spans[-1]))) + f" {word}"
