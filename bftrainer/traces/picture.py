"""A log in one picture: how long fragments are, how large the pool is, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrainer.traces.characteristics import HOUR, Characteristics, course, lengths
from bftrainer.traces.whole_file import save_figure

if TYPE_CHECKING:
    from bftrainer.traces.logs import Log

TICKS = {10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 6 * 3600: "6 h", 86400: "1 d", 604800: "1 week"}
COLOURS = ("#1f6f8b", "#d1603d")
POINTS = 4000
"""Most points of the pool over time: minimum and maximum of each stretch of time."""


def draw(log: Log, figures: Characteristics, path: Path, title: str) -> None:
    """Draw a log into the file `path`, whose suffix says its format (.png, .svg, .pdf).

    Raises:
        BftrainerError: it cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow, and only pictures need it

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplot_mosaic([["course", "course"], ["lengths", "sizes"]])
    row = figures.table1
    figure.suptitle(
        f"{title}\n{row.equivalent_nodes:,.1f} of {figures.machine_nodes:,} nodes idle on average "
        f"({row.ratio:.1%}); the pool grows {row.inc_per_h:.1f} and shrinks {row.dec_per_h:.1f} times an hour"
    )
    _draw_course(axes["course"], log)
    _draw_lengths(axes["lengths"], log)
    _draw_sizes(axes["sizes"], log, figures)
    save_figure(figure, path, "--png")


def _draw_course(axes: Any, log: Log) -> None:
    pool = course(log)
    hours = (pool.times - log.begin) / HOUR
    stretch = -(-pool.sizes.size // (POINTS // 2))
    cuts = np.arange(0, pool.sizes.size, stretch)
    highest = np.maximum.reduceat(pool.sizes, cuts)
    lowest = np.minimum.reduceat(pool.sizes, cuts)
    days = hours[-1] > 96
    at = np.append(hours[cuts], hours[-1]) / (24 if days else 1)
    axes.fill_between(
        at, np.append(lowest, lowest[-1]), np.append(highest, highest[-1]), step="post", color=COLOURS[0]
    )
    axes.set(
        title="Idle nodes over time",
        xlabel="days since the log's begin" if days else "hours since the log's begin",
        ylabel="idle nodes",
        xlim=(0, at[-1]),
        ylim=(0, None),
    )


def _draw_lengths(axes: Any, log: Log) -> None:
    length, count = lengths(log)
    for weight, label, colour in (
        (count, "of the fragments", COLOURS[0]),
        (count * length, "of the idle node-time", COLOURS[1]),
    ):
        share = np.cumsum(weight) / max(weight.sum(), 1e-12)
        first = length[:1]  # from 0 up to the first share
        axes.step(
            np.append(first, length),
            np.append(0 * first, share * 100),
            where="post",
            label=label,
            color=colour,
        )
    ticks = {at: label for at, label in TICKS.items() if not length.size or at <= length[-1] * 2}
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set(
        title="Fragments (one stay of one node) by length",
        xlabel="shorter than",
        ylabel="per cent",
        ylim=(0, 100),
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")


def _draw_sizes(axes: Any, log: Log, figures: Characteristics) -> None:
    pool = course(log)
    top = max(1, figures.pool_percentiles[100])
    edges = np.linspace(-0.5, top + 0.5, min(50, top + 1) + 1)
    held = np.diff(pool.times)
    axes.hist(pool.sizes, bins=edges, weights=100 * held / held.sum(), color=COLOURS[0])
    middle = figures.pool_percentiles[50]
    axes.axvline(middle, color=COLOURS[1], label=f"half of the time {middle:,} or fewer")
    axes.set(
        title=f"Pool sizes (empty {figures.empty_share:.1%} of the time)",
        xlabel="idle nodes",
        ylabel="per cent of the time",
    )
    axes.legend()
