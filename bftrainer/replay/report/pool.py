"""One replay: the pool and its use."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report.drawing import COLOURS, UNUSED, Picture, cut, legend_above, render, time_unit


def pool(data: ReportData, name: str) -> Picture:
    """How many nodes there were, and how many were used."""
    m = data.moments
    scale, unit = time_unit([data])
    time = np.append(m.time, data.end - data.begin) / scale

    def draw(axes: Axes) -> None:
        present, used = (np.append(column, column[-1:]) for column in (m.pool, m.used))
        axes.fill_between(time, present, step="post", color=UNUSED, linewidth=0, label="unused")
        axes.fill_between(time, used, step="post", color=COLOURS[0], linewidth=0, label="used by trainers")
        mean = data.figures["equivalent_nodes"]
        axes.axhline(mean, color="black", linewidth=1, linestyle="--", label=f"mean of the pool: {mean:,.1f}")
        axes.set(xlabel=f"time since the beginning ({unit})", ylabel="nodes in the pool", ylim=(0, None))
        axes.set_xlim(0, time[-1])
        axes.set_title(f"Idle nodes, and those that trainers used: {cut(data.name)}", pad=26)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        legend_above(axes)

    unused = data.figures["idle_node_hours"] / max(data.figures["node_hours"], 1e-9)
    caption = (
        f"The height is the number of nodes that the main scheduler left idle; the blue part of it held a "
        f"trainer. {unused:.1%} of all node-time was unused."
    )
    return render(f"{name}-pool", "Pool and its use", caption, draw, 3.6)
