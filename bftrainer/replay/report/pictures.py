"""Pictures of recorded replays, for people who have read nothing else. Colours suit the colour-blind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from bftrainer.performance.curve import Floats
from bftrainer.replay.record.data import ReportData

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6BB1", "#7F7F00")
"""Okabe and Ito's, without black and with a darker yellow."""
DASHES: Sequence[Any] = (
    "-",
    (0, (4, 2)),
    (0, (1, 1.5)),
    (0, (6, 2, 1, 2)),
    (0, (8, 4)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 3)),
    (0, (10, 2, 2, 2)),
)
"""No two neighbours alike: of curves that are the same, every one is seen."""
MOST = 3 * len(COLOURS)
"""So many runs can be told apart."""
UNUSED = "#BBBBBB"
HARDLY = 0.05
"""So small a share of completed trainers is said in the picture."""
DAY_S = 86_400.0
HOUR_S = 3600.0
WIDTH_IN = 11.0
COLUMNS, ROWS = 1600, 1000
"""A timeline has at most so many cells."""
LOOK: Any = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "legend.frameon": False,
    "figure.dpi": 110,
    "text.parse_math": False,  # a name may have a dollar sign
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG. `name` is fit for a file, `caption` says what is to be seen."""

    name: str
    title: str
    caption: str
    png: bytes


def of_one(record: ReportData, name: str) -> list[Picture]:
    """What happened in one replay; `name` is fit for files."""
    return [pool(record, name), timeline(record, name)]


def of_all(records: Sequence[ReportData]) -> list[Picture]:
    """What came of replays, beside each other."""
    found = [efficiency(records), costs(records), times(records)]
    return [*found, comparison(records)] if len(records) > 1 else found


# --- one replay ----------------------------------------------------------------------------------


def pool(record: ReportData, name: str) -> Picture:
    """How many nodes there were, and how many were used."""
    m = record.moments
    scale, unit = _unit([record])
    time = np.append(m.time, record.end - record.begin) / scale

    def draw(axes: Axes) -> None:
        present, used = (np.append(column, column[-1:]) for column in (m.pool, m.used))
        axes.fill_between(time, present, step="post", color=UNUSED, linewidth=0, label="unused")
        axes.fill_between(time, used, step="post", color=COLOURS[0], linewidth=0, label="used by trainers")
        mean = record.figures["equivalent_nodes"]
        axes.axhline(mean, color="black", linewidth=1, linestyle="--", label=f"mean of the pool: {mean:,.1f}")
        axes.set(xlabel=f"time since the beginning ({unit})", ylabel="nodes in the pool", ylim=(0, None))
        axes.set_xlim(0, time[-1])
        axes.set_title(f"Idle nodes, and those that trainers used: {_cut(record.name)}", pad=26)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        _legend_above(axes)

    unused = record.figures["idle_node_hours"] / max(record.figures["node_hours"], 1e-9)
    caption = (
        f"The height is the number of nodes that the main scheduler left idle; the blue part of it held a "
        f"trainer. {unused:.1%} of all node-time was unused."
    )
    return _picture(f"{name}-pool", "Pool and its use", caption, draw, 3.6)


def timeline(record: ReportData, name: str) -> Picture:
    """Which trainer was on which node when."""
    scale, unit = _unit([record])
    length = (record.end - record.begin) / scale
    image = raster(record)

    def draw(axes: Axes) -> None:
        n = max(1, len(record.nodes))
        axes.imshow(image, aspect="auto", extent=(0, length, n, 0), interpolation="antialiased")
        axes.grid(visible=False)
        axes.set(xlabel=f"time since the beginning ({unit})", ylabel="nodes, in order of their names")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(f"Who trained where: {_cut(record.name)}", pad=26)
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
        f"Every line is one of the {len(record.nodes):,} nodes that were idle at some time, every colour a "
        f"trainer; the {len(COLOURS)} colours are used in turn for {len(record.trainers):,} trainers."
    )
    return _picture(f"{name}-timeline", "Nodes and trainers", caption, draw, 5.6)


def raster(record: ReportData) -> Floats:
    """A timeline as colours, shape (lines, columns, 3): stays in the pool, over them those with trainers.

    Nodes come in the order of their names, several to a line where there are very many.
    """
    order = np.argsort(np.argsort([natural(node) for node in record.nodes], kind="stable"))
    rows = max(1, min(ROWS, len(record.nodes)))
    image = np.ones((rows, COLUMNS, 3), dtype=np.float32)
    palette = np.array([to_rgb(UNUSED), *(to_rgb(colour) for colour in COLOURS)], dtype=np.float32)
    stays = record.stays
    width = (record.end - record.begin) / COLUMNS
    lines = order[stays.node.astype(int)] * rows // max(1, len(record.nodes))
    first = np.minimum((stays.begin / width).astype(int), COLUMNS - 1)
    last = np.maximum(np.ceil(stays.end / width).astype(int), first + 1)
    ids = stays.trainer.astype(int)
    kinds = np.where(ids == 0, 0, (ids - 1) % len(COLOURS) + 1)
    for i in np.argsort(ids != 0, kind="stable").tolist():
        image[lines[i], first[i] : last[i]] = palette[kinds[i]]
    return image.astype(float)


# --- all replays ---------------------------------------------------------------------------------


def efficiency(records: Sequence[ReportData]) -> Picture:
    """U and E over time."""
    scale, unit = _unit(records)
    window = _window(records)

    def draw(upper: Axes, lower: Axes) -> None:
        upper.axhline(1, color="black", linewidth=1, zorder=1)
        for axes, key in ((upper, "efficiency_u"), (lower, "linear_efficiency")):
            for record, style in zip(records, _styles(), strict=False):
                _steps(axes, record, _shares(record, key), scale, style, _efficiencies(record))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.set(xlim=(0, _longest(records) / scale), ylim=(0, 1.05 * max(axes.dataLim.y1, 0.01)))
        upper.set_title("U: samples processed, of what as many dedicated nodes would have processed")
        upper.set_ylabel(f"U per {window}")
        lower.set_title(
            "E: samples processed, of what single nodes without any overhead would have processed"
        )
        lower.set(ylabel=f"E per {window}", xlabel=f"time since the beginning ({unit})")
        _legend_on_top(upper)

    caption = (
        "100 % in U would be the yield of a machine of the pool's mean size that nobody disturbs: what is "
        "missing was lost by rescaling, by nodes that left, and because the pool's size swings. E "
        "also counts what training on many nodes loses against single ones. Above 100 % in U: most "
        "nodes came when trainers did. A gap: no node was idle. In the legend: the whole replay."
    )
    return _picture(
        "efficiency",
        f"Efficiency per {window}",
        caption,
        draw,
        6.2 + _legend_in(map(_efficiencies, records)),
        rows=2,
    )


def costs(records: Sequence[ReportData]) -> Picture:
    """What rescaling and preemption cost over time."""
    scale, unit = _unit(records)

    def draw(upper: Axes, lower: Axes) -> None:
        for axes, key in ((upper, "rescale_samples"), (lower, "preemption_samples")):
            for record, style in zip(records, _styles(), strict=False):
                values = [getattr(w, key) / (w.end - w.begin) * HOUR_S for w in record.windows]
                _steps(axes, record, values, scale, style, _losses(record))
            axes.yaxis.set_major_formatter(FuncFormatter(_big))
            axes.set(ylabel="samples per hour", xlim=(0, _longest(records) / scale), ylim=(0, None))
        upper.set_title("Lost by rescales that were decided")
        lower.set_title("Lost because nodes were taken away")
        lower.set_xlabel(f"time since the beginning ({unit})")
        _legend_on_top(upper)

    caption = (
        "Samples that trainers would have processed while they stood still, at the speed that they had "
        "before. Decided rescales are an investment that is to pay off; nodes taken away by the main "
        f"scheduler are outside of our control. Means over {_window(records)}; in the legend: the "
        "whole replay."
    )
    return _picture(
        "costs",
        "Cost of rescaling and preemption",
        caption,
        draw,
        6.2 + _legend_in(map(_losses, records)),
        rows=2,
    )


def times(records: Sequence[ReportData]) -> Picture:
    """The distribution of job completion times."""
    counts = [_done_of(record) for record in records]
    highest = max(done / max(all_, 1) for done, all_ in counts)
    done, all_ = (sum(column) for column in zip(*counts, strict=True))
    said = f"{done:,} of {all_:,} completed" + " in all runs together" * (len(records) > 1)

    def draw(left: Axes, right: Axes) -> None:
        for record, style in zip(records, _styles(), strict=False):
            n = len(record.trainers)
            for axes, begun in ((left, "submitted"), (right, "started")):
                hours = sorted(
                    (t.ended - getattr(t, begun)) / HOUR_S
                    for t in record.trainers
                    if t.completed and t.ended is not None
                )
                x, y = [0.0, *hours], np.arange(len(hours) + 1) / max(n, 1)
                axes.step(x, y, where="post", label=_completed(record), **style)
        for axes, what in ((left, "submission"), (right, "first node")):
            axes.set(xlabel=f"hours from {what} to end", ylim=(0, 1.1 * (highest or 1.0)), xlim=(0, None))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            if highest < HARDLY:
                axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center")
        left.set_ylabel("share of all trainers that had completed")
        left.set_title("Turnaround")
        right.set_title("Runtime")
        _legend_on_top(left)

    caption = (
        "How large a share of the trainers was done after so many hours, from submission (left: with the "
        "time in the queue) and from the first node (right). A curve that ends below 100 %: the others had "
        "not completed when the replay ended."
    )
    return _picture(
        "completion-times",
        "Job completion times",
        caption,
        draw,
        4.2 + _legend_in(map(_completed, records)),
        columns=2,
    )


def comparison(records: Sequence[ReportData]) -> Picture:
    """The main figures as bars."""
    figures: Sequence[tuple[str, str, Callable[[ReportData], float], Callable[[float], str]]] = (
        ("Efficiency U", "%", lambda r: 100 * r.figures["efficiency_u"], lambda v: f"{v:.1f} %"),
        ("Efficiency E", "%", lambda r: 100 * r.figures["linear_efficiency"], lambda v: f"{v:.1f} %"),
        ("Samples processed", "samples", lambda r: r.figures["samples"], _big),
        ("Trainers completed", "trainers", lambda r: r.figures["completed"], lambda v: f"{v:,.0f}"),
        ("Lost by rescaling", "samples", lambda r: r.figures["rescale_samples"], _big),
        ("Lost by preemption", "samples", lambda r: r.figures["preemption_samples"], _big),
    )

    def draw(*grid: Axes) -> None:
        names = [_cut(record.name) for record in records]
        for i, (axes, (title, unit, value, shown)) in enumerate(zip(grid, figures, strict=True)):
            values = [value(record) for record in records]
            colours = [style["color"] for style, _ in zip(_styles(), records, strict=False)]
            bars = axes.barh(range(len(records)), values, color=colours)
            axes.bar_label(bars, [shown(v) for v in values], padding=3, fontsize=10)
            axes.set(title=title, xlabel=unit, xlim=(0, 1.3 * max(values) or 1.0))
            axes.set_yticks(range(len(records)), names if i % 2 == 0 else [""] * len(records), fontsize=10)
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.xaxis.set_major_formatter(FuncFormatter(_big))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=unit != "%"))

    height = 3 * (1.1 + 0.3 * len(records))
    caption = "The figures of the whole replays. Longer is better, but for the two kinds of loss."
    return _picture("comparison", "Comparison", caption, draw, height, rows=3, columns=2)


# --- helpers -------------------------------------------------------------------------------------


def _picture(
    name: str,
    title: str,
    caption: str,
    draw: Callable[..., None],
    height_in: float,
    *,
    rows: int = 1,
    columns: int = 1,
) -> Picture:
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(*figure.subplots(rows, columns, squeeze=False).flat)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return Picture(name, title, caption, buffer.getvalue())


def _steps(
    axes: Axes, record: ReportData, values: Sequence[float], scale: float, style: dict[str, Any], label: str
) -> None:
    """One value per window, as a line with steps."""
    edges = [record.windows[0].begin, *(window.end for window in record.windows)]
    axes.stairs(values, [edge / scale for edge in edges], label=label, linewidth=2, baseline=None, **style)


def _shares(record: ReportData, key: str) -> list[float]:
    """U or E of each window: 0 where there were nodes and nothing to train, NaN where there were none."""
    found = []
    for window in record.windows:
        value = getattr(window, key)
        found.append(value if value is not None else 0.0 if window.nodes else np.nan)
    return found


def _efficiencies(record: ReportData) -> str:
    """For a legend."""
    figures = record.figures
    return f"{_cut(record.name)}: U {figures['efficiency_u']:.1%}, E {figures['linear_efficiency']:.1%}"


def _losses(record: ReportData) -> str:
    """For a legend."""
    decided, taken = (_big(record.figures[f"{kind}_samples"]) for kind in ("rescale", "preemption"))
    return f"{_cut(record.name)}: {decided} samples by rescales, {taken} by nodes taken away"


def _completed(record: ReportData) -> str:
    """For a legend."""
    done, all_ = _done_of(record)
    return f"{_cut(record.name)}: {done:,} of {all_:,} completed"


def _done_of(record: ReportData) -> tuple[int, int]:
    """How many trainers completed, and how many there were."""
    return sum(trainer.completed for trainer in record.trainers), len(record.trainers)


def _window(records: Sequence[ReportData]) -> str:
    """How long the windows are, in words; the last one of a replay may be shorter."""
    spans = sorted({record.windows[0].end - record.windows[0].begin for record in records})
    unit, word = (HOUR_S, "hours") if spans[0] >= HOUR_S else (60.0, "minutes")
    return " to ".join(f"{span / unit:.3g}" for span in dict.fromkeys((spans[0], spans[-1]))) + f" {word}"


def _styles() -> Iterator[dict[str, Any]]:
    """Colours and dashes, no combination twice in `MOST`."""
    n = len(COLOURS)
    return ({"color": COLOURS[i % n], "linestyle": DASHES[(i + i // n) % n]} for i in count())


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, fontsize=10)


def _legend_on_top(axes: Axes) -> None:
    """One legend for all of the picture."""
    assert isinstance(axes.figure, Figure)  # noqa: S101  not a part of one
    lines, labels = axes.get_legend_handles_labels()
    axes.figure.legend(
        lines, labels, loc="outside upper left", ncols=_legend_columns(labels), handlelength=3.5
    )


def _legend_columns(labels: Iterable[str]) -> int:
    """As many as labels leave room for."""
    return max(1, 120 // (max(map(len, labels)) + 9))


def _legend_in(labels: Iterable[str]) -> float:
    """Its height."""
    found = list(labels)
    return 0.2 + 0.23 * -(-len(found) // _legend_columns(found))


def _longest(records: Sequence[ReportData]) -> float:
    return max(record.end - record.begin for record in records)


def _unit(records: Sequence[ReportData]) -> tuple[float, str]:
    """Days for long replays, else hours; as seconds and as a word."""
    return (DAY_S, "days") if _longest(records) > 2 * DAY_S else (HOUR_S, "hours")


def _big(value: float, place: object = None) -> str:
    for size, word in ((1e12, " tn"), (1e9, " bn"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{word}"
    return f"{value:.3g}"


def _cut(name: str, most: int = 40) -> str:
    """Fit for a legend, which leaves out what begins with an underscore. Names often differ at the end."""
    name = name.lstrip("_")
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most // 2 :]}"


def natural(node: str) -> str:
    """A key that puts n2 before n10."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(12), node)
