"""Parts of all pictures: colours that suit the colour-blind, legends, units, and the drawing itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bftrainer.replay.record.data import ReportData

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6BB1", "#7F7F00")
"""The palette of Okabe and Ito, without black and with a darker yellow."""
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
"""No two neighbours are alike, so that equal curves on top of each other are all seen."""
MOST = 3 * len(COLOURS)
"""Runs that can be distinguished in one picture."""
UNUSED = "#BBBBBB"
"""The colour of idle nodes that no trainer held."""
DAY_S = 86_400.0
HOUR_S = 3600.0
WIDTH_IN = 11.0
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
    """A PNG. `name` is a file name without suffix, `caption` says what the picture shows."""

    name: str
    title: str
    caption: str
    png: bytes


def render(
    name: str,
    title: str,
    caption: str,
    draw: Callable[..., None],
    height_in: float,
    *,
    rows: int = 1,
    columns: int = 1,
) -> Picture:
    """A picture of `height_in` inches. `draw` is called with its axes: `rows` times `columns` of them."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(*figure.subplots(rows, columns, squeeze=False).flat)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return Picture(name, title, caption, buffer.getvalue())


def styles() -> Iterator[dict[str, Any]]:
    """Colour and dashes for one run after the other; the first `MOST` are all different."""
    n = len(COLOURS)
    return ({"color": COLOURS[i % n], "linestyle": DASHES[(i + i // n) % n]} for i in count())


def legend_above(axes: Axes) -> None:
    """A legend in one line above the axes."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2, fontsize=10)


def legend_on_top(axes: Axes) -> None:
    """One legend on top of the whole picture, with the labels of these axes."""
    assert isinstance(axes.figure, Figure)  # noqa: S101  not a part of one
    lines, labels = axes.get_legend_handles_labels()
    axes.figure.legend(
        lines, labels, loc="outside upper left", ncols=_legend_columns(labels), handlelength=3.5
    )


def _legend_columns(labels: Iterable[str]) -> int:
    """Number of columns of such labels that fit into a legend."""
    return max(1, 120 // (max(map(len, labels)) + 9))


def legend_height(labels: Iterable[str]) -> float:
    """The height (inches) of a legend on top that has these labels."""
    found = list(labels)
    return 0.2 + 0.23 * -(-len(found) // _legend_columns(found))


def longest(replays: Sequence[ReportData]) -> float:
    """The length (s) of the longest replay."""
    return max(data.end - data.begin for data in replays)


def time_unit(replays: Sequence[ReportData]) -> tuple[float, str]:
    """The unit of a time axis, in seconds and as a word: days for long replays, else hours."""
    return (DAY_S, "days") if longest(replays) > 2 * DAY_S else (HOUR_S, "hours")


def big(value: float, place: object = None) -> str:
    """A number with at most three digits and a unit such as M; `place` is what matplotlib adds."""
    for size, word in ((1e12, " tn"), (1e9, " bn"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{word}"
    return f"{value:.3g}"


def cut(name: str, most: int = 40) -> str:
    """A name short enough for a legend. Its middle is cut out, as names often differ at the end.

    Leading underscores go: matplotlib leaves labels that begin with one out of legends.
    """
    name = name.lstrip("_")
    return name if len(name) <= most else f"{name[: most // 2]}…{name[1 - most // 2 :]}"


def natural(node: str) -> str:
    """A key to sort names by, which puts n2 before n10."""
    return re.sub(r"\d+", lambda digits: digits[0].zfill(12), node)
