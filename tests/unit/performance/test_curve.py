"""Scalability curves: what is refused, what lies between the points, what is learnt."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.model.trainer import Points
from bftrainer.performance import curve
from tests.support import oracle

rates = st.floats(0.01, 1e6)
curves = st.dictionaries(st.integers(1, 60), rates, min_size=1, max_size=6).map(
    lambda d: curve.make(d.items())
)


def test_points_are_sorted_as_pairs() -> None:
    assert curve.make([(8, 20.0), (1, 5), (2, 30.0)]) == ((1, 5.0), (2, 30.0), (8, 20.0))


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([], "no curve has no point"),
        ([(0, 1.0)], "a point at 0 nodes"),
        ([(2, 1.0), (-3, 1.0)], "a point at -3 nodes"),
        ([(2, 1.0), (1, 5.0), (2, 1.0)], "two points for 2 nodes"),
        ([(1, 0.0)], "no curve has 0.0 samples/s on 1 nodes"),
        ([(1, 1.0), (4, -2.0)], "-2.0 samples/s on 4 nodes"),
        ([(1, float("inf"))], "inf samples/s on 1 nodes"),
        ([(1, float("nan"))], "nan samples/s on 1 nodes"),
    ],
)
def test_impossible_curves_are_refused(points: list[tuple[int, float]], said: str) -> None:
    with pytest.raises(curve.CurveError, match=said) as error:
        curve.make(points)
    assert isinstance(error.value, BftrainerError)


@given(curves, st.integers(1, 80))
def test_rates_are_linear_between_points_and_flat_beyond(points: Points, n_max: int) -> None:
    table = curve.table(points, n_max)
    assert table.shape == (n_max + 1,)
    assert table[0] == 0.0
    assert table == pytest.approx(
        [oracle.interpolate(points, n) for n in range(n_max + 1)], rel=1e-9, abs=1e-6
    )
    assert curve.rate(points, n_max) == table[n_max]


def test_rates_by_hand() -> None:
    points = ((2, 10.0), (4, 40.0), (6, 20.0))
    assert list(curve.table(points, 8)) == [0.0, 5.0, 10.0, 25.0, 40.0, 30.0, 20.0, 20.0, 20.0]
    assert curve.rate(points, 0) == 0.0


def test_tables_cannot_be_written_to() -> None:
    table = curve.table(((1, 1.0),), 3)
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1.0
    assert isinstance(table, np.ndarray)


@given(st.dictionaries(st.integers(1, 5000), rates, min_size=1, max_size=6), st.integers(1, 6000))
def test_the_rate_on_many_nodes_is_that_of_the_table(pairs: dict[int, float], n: int) -> None:
    points = curve.make(pairs.items())
    assert curve.rate(points, n) == pytest.approx(curve.table(points, 6000)[n], rel=1e-9)


def test_curves_of_users_who_ask_for_all_nodes_there_might_be_take_no_memory() -> None:
    tracemalloc.start()
    try:
        for i in range(1, 31):
            points = ((1, 1.0 + i), (1_000_000, 2.0 + i))
            curve.table(points, 1_000_000)
            curve.rate(points, 65_536)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
