"""One replay: which trainer was on which node when."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bftrainer.performance.curve import Floats
from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report.drawing import (
    COLOURS,
    UNUSED,
    Picture,
    cut,
    legend_above,
    natural,
    render,
    time_unit,
)

COLUMNS, ROWS = 1600, 1000
"""Most cells of a timeline."""


def pool(data: ReportData, name: str) -> Picture:
    """Number of nodes in the pool, and in use, over time."""
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


def timeline(data: ReportData, name: str) -> Picture:
    """The trainer on each node over time."""
    scale, unit = time_unit([data])
    length = (data.end - data.begin) / scale
    image = raster(data)

    def draw(axes: Axes) -> None:
        n = max(1, len(data.nodes))
        axes.imshow(image, aspect="auto", extent=(0, length, n, 0), interpolation="antialiased")
        axes.grid(visible=False)
        axes.set(xlabel=f"time since the beginning ({unit})", ylabel="nodes, in order of their names")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(f"Which trainer ran where: {cut(data.name)}", pad=26)
        colours: list[Patch | tuple[Patch, ...]] = [
            tuple(Patch(color=colour) for colour in COLOURS[:4]),
            Patch(color=UNUSED),
            Patch(facecolor="white", edgecolor="#888888"),
        ]
        labels = ["trainers, each in its colour", "idle, unused", "with the main scheduler"]
        axes.legend(
            colours,
            labels,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
            borderaxespad=0.2,
            fontsize=10,
            handler_map={tuple: HandlerTuple(None, pad=0)},
        )

    caption = (
        f"Every line is one of the {len(data.nodes):,} nodes that were idle at some time, every colour a "
        f"trainer; the {len(COLOURS)} colours are used in turn for {len(data.trainers):,} trainers."
    )
    return render(f"{name}-timeline", "Nodes and trainers", caption, draw, 5.6)


def raster(data: ReportData) -> Floats:
    """A timeline as colours, shape (lines, columns, 3): stays in the pool, over them those with trainers.

    Nodes come in the order of their names, several to a line where there are very many.
    """
    order = np.argsort(np.argsort([natural(node) for node in data.nodes], kind="stable"))
    rows = max(1, min(ROWS, len(data.nodes)))
    image = np.ones((rows, COLUMNS, 3), dtype=np.float32)
    palette = np.array([to_rgb(UNUSED), *(to_rgb(colour) for colour in COLOURS)], dtype=np.float32)
    stays = data.stays
    width = (data.end - data.begin) / COLUMNS
    lines = order[stays.node.astype(int)] * rows // max(1, len(data.nodes))
    first = np.minimum((stays.begin / width).astype(int), COLUMNS - 1)
    last = np.maximum(np.ceil(stays.end / width).astype(int), first + 1)
    ids = stays.trainer.astype(int)
    kinds = np.where(ids == 0, 0, (ids - 1) % len(COLOURS) + 1)
    for i in np.argsort(ids != 0, kind="stable").tolist():
        image[lines[i], first[i] : last[i]] = palette[kinds[i]]
    return image.astype(float)
