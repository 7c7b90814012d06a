"""A trainer's course: what was trained again counts once where it is drawn, and CSV has all."""

from __future__ import annotations

import csv
import io
from typing import Any

from bftrainer.series.points import FIXED, as_csv, lasting, points_of


def row(step: int, time: float = 0.0, rate: float | None = 8.0, **metrics: float) -> dict[str, Any]:
    return {"time": time, "step": step, "samples": 4 * step, "size": 2, "rate": rate, "metrics": metrics}


def test_what_a_checkpoint_took_back_counts_once() -> None:
    points = points_of([row(10, loss=1.0), row(20, loss=0.5), row(30, loss=0.4), row(20, loss=0.6), row(25)])
    kept = lasting(points)
    assert [p.step for p in kept] == [10, 20, 25]
    assert kept[1].metrics == {"loss": 0.6}


def test_csv_has_a_line_for_each_point_and_a_column_for_each_figure() -> None:
    text = as_csv(points_of([row(10, 1.5, loss=1.0), row(10, 2.0, None, accuracy=0.5, nodes=3.0)]))
    lines = list(csv.reader(io.StringIO(text)))
    assert lines == [
        [*FIXED, "accuracy", "loss", "metric.nodes"],
        ["1970-01-01T00:00:01.500+00:00", "10", "40", "2", "8.0", "", "1.0", ""],
        ["1970-01-01T00:00:02.000+00:00", "10", "40", "2", "", "0.5", "", "3.0"],
    ]


def test_names_with_commas_and_quotes_stay_one_cell() -> None:
    (head, _) = csv.reader(io.StringIO(as_csv(points_of([row(1, **{'a,"b"': 1.0})]))))
    assert head[-1] == 'a,"b"'


def test_no_name_of_a_figure_begins_a_formula() -> None:
    figures = {f"{sign}cmd|' /C calc'!A0": 1.0 for sign in "=+-@\t\uff1d"}
    (head, _) = csv.reader(io.StringIO(as_csv(points_of([row(1, **figures)]))))
    assert [name[0] for name in head[len(FIXED) :]] == ["'"] * 6
