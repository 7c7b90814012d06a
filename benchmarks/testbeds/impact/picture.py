"""The waits of main jobs in the three runs of a pair, and whose the nodes were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.testbeds.impact.differences import AGAIN, MODES, WITH, WITHOUT
from benchmarks.testbeds.impact.tables import Runs
from benchmarks.testbeds.runs import MainRun, busy, waits
from bftrainer.replay.report.drawing import COLOURS

LINES = {WITHOUT: COLOURS[7], AGAIN: COLOURS[3], WITH: COLOURS[0]}


def draw(pairs: Sequence[Runs]) -> Figure:
    """Draw the waits of all pairs together, and the nodes of the first pair."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    top, *below = figure.subplot_mosaic([["waits", "waits"], [WITHOUT, WITH]]).values()
    for mode in MODES:
        seconds = np.sort([wait for pair in pairs for wait in waits(pair.jobs[mode])])
        top.step(
            np.concatenate(([0], seconds)),
            np.linspace(0, 1, len(seconds) + 1),
            where="post",
            color=LINES[mode],
            label="without, again" if mode == AGAIN else mode,
        )
    top.set(
        xlabel="wait of a main job, seconds (up to 1 s linear, then logarithmic)",
        ylabel="share of main jobs",
        ylim=(0, 1.02),
        xlim=(0, None),
    )
    top.set_xscale("symlog", linthresh=1)
    top.yaxis.set_major_formatter(PercentFormatter(1))
    top.legend(loc="lower right")
    for axes, mode in zip(below, (WITHOUT, WITH), strict=True):
        _draw_nodes(axes, pairs[0].outcomes[mode], pairs[0].jobs[mode], mode)
    return figure


def _draw_nodes(axes: Axes, outcome: Mapping[str, Any], runs: Sequence[MainRun], mode: str) -> None:
    begin, end, nodes = outcome["begin"], outcome["end"], outcome["nodes"]
    moments = np.arange(begin, end, 1.0)
    mains = _at(moments, busy(runs, begin, end))
    training = _at(moments, [tuple(step) for step in outcome["training"]])
    axes.fill_between(moments - begin, mains, step="post", color=COLOURS[4], label="main jobs", linewidth=0)
    if mode == WITH:
        together = np.minimum(mains + training, nodes)
        axes.fill_between(
            moments - begin, mains, together, step="post", color=COLOURS[2], label="trainers", linewidth=0
        )
    axes.set(
        title=f"{mode} bftrainer", xlabel="seconds", ylabel="nodes", ylim=(0, nodes), xlim=(0, end - begin)
    )
    axes.legend(loc="upper right")


def _at(moments: Any, steps: Sequence[tuple[float, float]]) -> Any:
    """The value of a step function at each moment; 0 before its first step."""
    times, values = np.array([t for t, _ in steps]), np.array([0, *(value for _, value in steps)])
    return values[np.searchsorted(times, moments, side="right")]
