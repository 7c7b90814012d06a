"""Several replays: how long trainers took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report.drawing import (
    HOUR_S,
    Picture,
    cut,
    legend_height,
    legend_on_top,
    render,
    styles,
)

HARDLY = 0.05
"""If no run completed more than this share of its trainers, the picture says so in words."""


def times(replays: Sequence[ReportData]) -> Picture:
    """The distribution of turnarounds and runtimes, one line per replay."""
    counts = [_done_of(data) for data in replays]
    highest = max(done / max(all_, 1) for done, all_ in counts)
    done, all_ = (sum(column) for column in zip(*counts, strict=True))
    said = f"{done:,} of {all_:,} completed" + " in all runs together" * (len(replays) > 1)

    def draw(left: Axes, right: Axes) -> None:
        for data, style in zip(replays, styles(), strict=False):
            n = len(data.trainers)
            for axes, begun in ((left, "submitted"), (right, "started")):
                hours = sorted(
                    (t.ended - getattr(t, begun)) / HOUR_S
                    for t in data.trainers
                    if t.completed and t.ended is not None
                )
                x, y = [0.0, *hours], np.arange(len(hours) + 1) / max(n, 1)
                axes.step(x, y, where="post", label=_completed(data), **style)
        for axes, what in ((left, "submission"), (right, "first node")):
            axes.set(xlabel=f"hours from {what} to end", ylim=(0, 1.1 * (highest or 1.0)), xlim=(0, None))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            if highest < HARDLY:
                axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center")
        left.set_ylabel("share of all trainers that had completed")
        left.set_title("Turnaround")
        right.set_title("Runtime")
        legend_on_top(left)

    caption = (
        "How large a share of the trainers was done after so many hours, from submission (left: with the "
        "time in the queue) and from the first node (right). A curve that ends below 100 %: the others had "
        "not completed when the replay ended."
    )
    return render(
        "completion-times",
        "Job completion times",
        caption,
        draw,
        4.2 + legend_height(map(_completed, replays)),
        columns=2,
    )


def _completed(data: ReportData) -> str:
    """The label of a replay in the legend."""
    done, all_ = _done_of(data)
    return f"{cut(data.name)}: {done:,} of {all_:,} completed"


def _done_of(data: ReportData) -> tuple[int, int]:
    """Number of completed trainers, and of all."""
    return sum(trainer.completed for trainer in data.trainers), len(data.trainers)
