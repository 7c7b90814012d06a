"""Plans in pictures: nodes over time beside a fixed size, and how likely a search is done by when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.search.plan.baselines import StagePlan
from bftrainer.search.plan.model.profile import Floats
from bftrainer.traces.whole_file import save_figure

COLOURS = ("#1f6f8b", "#3b9ab2", "#78b7c5", "#e1af00", "#d1603d")


def draw(plans: Sequence[tuple[str, StagePlan, StagePlan | None]], deadline_s: float, path: Path) -> None:
    """Draw plans, each with its name and the fixed size to compare with, into `path` (.png, .svg, .pdf).

    Raises:
        BftrainerError: it cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow, and only pictures need it

    figure = Figure(figsize=(10, 1 + 3.5 * len(plans)), layout="constrained")
    axes = figure.subplots(len(plans), 1, squeeze=False)
    for ax, (name, plan, fixed) in zip(axes[:, 0], plans, strict=True):
        _draw(ax, name, plan, fixed, deadline_s)
    save_figure(figure, path, "--picture")


def draw_ends(lines: Sequence[tuple[str, Floats]], deadline_s: float, path: Path) -> None:
    """Draw how likely a search is done by when: a line for each name with its seconds; into `path`.

    Raises:
        BftrainerError: it cannot be written.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  slow, and only pictures need it

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for (name, seconds), colour in zip(lines, (COLOURS[0], COLOURS[-1]), strict=False):
        ends = np.sort(seconds[np.isfinite(seconds)]) / 3600
        axes.step(
            ends, 100 * np.arange(1, ends.size + 1) / seconds.size, where="post", label=name, color=colour
        )
    axes.axvline(deadline_s / 3600, color="#555555", linestyle="--", label="deadline")
    axes.set(xlabel="hours", ylabel="per cent of the moments", xlim=(0, 4 * deadline_s / 3600), ylim=(0, 100))
    axes.set_title("Done within so many hours")
    axes.legend()
    save_figure(figure, path, "--picture")


def _draw(axes: Any, name: str, plan: StagePlan, fixed: StagePlan | None, deadline_s: float) -> None:
    unit, per = ("hours", 3600.0) if deadline_s > 3 * 3600 else ("minutes", 60.0)
    at = 0.0
    if not plan.steps:
        hours = plan.estimate.jct_s / per
        axes.bar(0, plan.held, width=hours, align="edge", color=COLOURS[0], label="shared trial by trial")
    for k, (step, seconds) in enumerate(zip(plan.steps, plan.estimate.seconds.mean(axis=1), strict=False)):
        axes.bar(
            at / per,
            step.nodes,
            width=seconds / per,
            align="edge",
            color=COLOURS[k % len(COLOURS)],
            edgecolor="white",
            label=f"{step.stage.trials} trials, {step.parallel} at a time with {step.workers}",
        )
        at += float(seconds)
    if fixed is not None:
        nodes, end = fixed.steps[0].nodes, fixed.estimate.jct_s / per
        axes.plot([0, end, end], [nodes, nodes, 0], "--", color="#555555", label=f"fixed size: {nodes} nodes")
    axes.axvline(deadline_s / per, color="#d1603d", label="deadline")
    axes.set(title=name, xlabel=unit, ylabel="nodes", xlim=(0, None), ylim=(0, None))
    axes.legend(fontsize="small")
