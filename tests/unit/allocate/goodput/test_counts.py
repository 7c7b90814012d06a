"""Counts of workers beside an enumeration of all that there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.allocate.goodput.counts import (
    ChangeCost,
    GoodputAim,
    GoodputCandidate,
    GoodputObjective,
    choose_counts,
    values,
    weights_of,
)

CANDIDATES = st.builds(
    lambda gains, held, work, lasts, served, changes: GoodputCandidate(
        np.array([0.0, *gains]), held, work, lasts, served, changes
    ),
    st.lists(st.floats(0.0, 4.0), min_size=1, max_size=5),
    st.integers(0, 6),
    st.floats(0.0, 1e5),
    st.floats(1e-3, 1e5),
    st.floats(0.0, 1e6),
    st.integers(0, 9),
)


def objective_of(
    candidates: list[GoodputCandidate], counts: tuple[int, ...], objective: GoodputObjective
) -> float:
    """The objective of these counts, written out."""
    return float(
        sum(
            weight * values(candidate, objective)[n]
            for weight, candidate, n in zip(
                weights_of(candidates, objective), candidates, counts, strict=True
            )
        )
    )


@settings(deadline=None)
@given(
    st.lists(CANDIDATES, min_size=1, max_size=4),
    st.integers(0, 9),
    st.sampled_from([0.5, 0.7, 1.0]),
    st.sampled_from(GoodputAim),
    st.sampled_from(ChangeCost),
)
def test_no_other_counts_are_worth_more(
    candidates: list[GoodputCandidate], size: int, power: float, aim: GoodputAim, cost: ChangeCost
) -> None:
    objective = GoodputObjective(aim=aim, power=power, cost=cost)
    chosen = choose_counts(candidates, size, objective)
    assert sum(chosen) <= size
    every = product(*(range(len(candidate.speedups)) for candidate in candidates))
    best = max(objective_of(candidates, counts, objective) for counts in every if sum(counts) <= size)
    assert objective_of(candidates, tuple(chosen), objective) == pytest.approx(best)


def test_a_change_counts_by_the_time_that_it_leaves() -> None:
    grows = np.array([0.0, 1.0, 2.0])
    long, short = (
        values(GoodputCandidate(grows, 1, 0.0, lasts), GoodputObjective()) for lasts in (1e9, 30.0)
    )
    assert long.tolist() == pytest.approx([0, 1, (2 * 270 / 300) ** 0.5])
    assert short.tolist() == pytest.approx([0, 1, (2 * 30 / 60) ** 0.5])


def test_pollux_costs_of_a_change_are_those_of_its_versions() -> None:
    grows = np.array([0.0, 1.0, 2.0])
    candidate = GoodputCandidate(grows, 1, 0.0, 270.0, changes=3)
    penalty, factor = (
        values(candidate, GoodputObjective(aim=GoodputAim.WEIGHTED, cost=cost))
        for cost in (ChangeCost.PENALTY, ChangeCost.FACTOR)
    )
    assert penalty.tolist() == [0, 1, 1.75]
    assert factor.tolist() == pytest.approx([0, 1, 2 * (270 - 3 * 30) / (270 + 30)])
    new = GoodputCandidate(grows, 0, 0.0, 0.0, changes=9)
    assert values(new, GoodputObjective(aim=GoodputAim.WEIGHTED, cost=ChangeCost.FACTOR)).tolist() == [
        0,
        0,
        0,
    ]


def test_a_small_gain_moves_no_worker() -> None:
    grows = np.array([0.0, 1.0, 1.05])
    assert choose_counts([GoodputCandidate(grows, 1, 0.0, 1e9)], 2) == [1]
    assert choose_counts([GoodputCandidate(grows, 2, 0.0, 1e9)], 2) == [2]


def test_no_trainer_needs_no_worker() -> None:
    assert choose_counts([], 8) == []


def test_polluxs_weights_decay_with_the_gpu_time_beyond_four_hours() -> None:
    served = [GoodputCandidate(np.array([0.0, 1.0]), 0, 0.0, 1e9, hours * 3600) for hours in (0, 4, 16, 400)]
    assert weights_of(served, GoodputObjective(aim=GoodputAim.WEIGHTED)).tolist() == pytest.approx(
        [1, 1, 0.5, 0.1]
    )
    flat = GoodputObjective(aim=GoodputAim.WEIGHTED, decay=0.0)
    assert weights_of(served, flat).tolist() == [1, 1, 1, 1]
    assert weights_of(served, GoodputObjective(aim=GoodputAim.HARMONIC)).tolist() == [1, 1, 1, 1]


def test_the_harmonic_mean_leaves_nobody_waiting_where_a_sum_does() -> None:
    flat, steep = np.array([0.0, 0.5, 0.5]), np.array([0.0, 1.0, 2.0])
    two = [GoodputCandidate(flat, 0, 0.0, 1e9), GoodputCandidate(steep, 0, 1.0, 1e9)]
    assert choose_counts(two, 2, GoodputObjective(aim=GoodputAim.WEIGHTED)) == [0, 2]
    assert choose_counts(two, 2, GoodputObjective(aim=GoodputAim.HARMONIC)) == [1, 1]
