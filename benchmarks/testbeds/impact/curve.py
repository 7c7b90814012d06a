"""Headroom's savings for main jobs and costs for trainers: delay over harvested node-time, by headroom.

The runs without bftrainer of a seed serve every headroom, as it is nothing to them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from benchmarks.testbeds.impact.differences import FIGURES, MODES, WITH, OverPairs, compare, over_pairs
from benchmarks.testbeds.impact.tables import table
from benchmarks.testbeds.impact.taking import Taken
from bftrainer.replay.report.drawing import COLOURS

HEADROOMS = ("0", "5%", "10%", "20%", "30%")
DEFAULT = "auto"
"""The daemon's default, with which the pairs themselves are taken."""


@dataclass(frozen=True, slots=True)
class Point:
    """The effects of one headroom, over all pairs.

    Attributes:
        headroom: The daemon's setting.
        pairs: Their number.
        later: Name of a figure (median, mean, p99) -> s that main jobs were later by, as measured.
        noise: The same between the two runs without.
        harvested: Node-hours that pilots held, per hour of a run: the median of pairs.
        trained: Node-hours of nodes on which trainers took part in training, per hour: the median of pairs.
    """

    headroom: str
    pairs: int
    later: Mapping[str, OverPairs]
    noise: Mapping[str, OverPairs]
    harvested: float
    trained: float


def point(headroom: str, found: Mapping[int, Mapping[str, Taken]]) -> Point:
    """Return a headroom's point from its pairs: seed -> mode -> run.

    Raises:
        TestbedError: in a pair no main job has started in all three runs.
    """
    pairs = [compare(seed, {mode: runs[mode].runs for mode in MODES}) for seed, runs in found.items()]
    outcomes = [runs[WITH].outcome for runs in found.values()]
    return Point(
        headroom,
        len(pairs),
        {name: over_pairs(pairs, name, "later") for name in FIGURES},
        {name: over_pairs(pairs, name, "noise") for name in FIGURES},
        statistics.median(outcome["held"] * outcome["nodes"] for outcome in outcomes),
        statistics.median(outcome["trained"] * outcome["nodes"] for outcome in outcomes),
    )


def points_table(points: Sequence[Point]) -> list[str]:
    """Return a row per headroom; the noise, which is common to all, stands in the last."""
    rows = [
        (
            f"`{one.headroom}`",
            str(one.pairs),
            *(f"{one.later[name].median:+.2f} s" for name in FIGURES),
            f"{one.harvested:.2f}",
            f"{one.trained:.2f}",
        )
        for one in points
    ]
    if points:
        widest = max(points, key=lambda one: one.pairs)
        noise = (f"{widest.noise[name].median:+.2f} s" for name in FIGURES)
        rows.append(("without, again", str(widest.pairs), *noise, "0", "0"))
    later = (f"later by, {name}" for name in FIGURES)
    return table(("headroom", "pairs", *later, "node-hours held an hour", "trained on"), rows)


def draw(points: Sequence[Point]) -> Figure:
    """Draw how much later main jobs start over what is harvested, with the noise as a band."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    every = figure.subplots(1, len(FIGURES))
    for axes, name in zip(every, FIGURES, strict=True):
        axes.axhspan(
            0,
            max(one.noise[name].median for one in points),
            color=COLOURS[7],
            alpha=0.25,
            label="between two runs without",
        )
        for one in points:
            mark = {"color": COLOURS[0] if one.headroom == DEFAULT else COLOURS[3]}
            axes.plot(one.harvested, one.later[name].median, "o", **mark)
            axes.annotate(
                one.headroom,
                (one.harvested, one.later[name].median),
                textcoords="offset points",
                xytext=(5, 5),
            )
        axes.set(xlabel="node-hours held by pilots, an hour", title=name)
    every[0].set_ylabel("main jobs start later by, s")
    every[0].legend(loc="upper left", fontsize="small")
    return figure
