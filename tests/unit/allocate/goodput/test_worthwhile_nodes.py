"""Nodes are worth their cost while the utility of all GPUs is within bounds."""

from __future__ import annotations

import numpy as np
import pytest

from bftrainer.allocate.goodput.sizes import TrainingPhases, UtilityBounds, phases_of_curve
from bftrainer.performance.goodput import GoodputError

FALLING = [1.0, 0.9, 0.7, 0.6, 0.5, 0.3]


@pytest.mark.parametrize(
    ("low", "high", "held", "nodes"),
    [
        (0.4, 0.8, 0, 4),  # 0.6 is their middle
        (0.4, 0.8, 3, 3),  # within the bounds: stays
        (0.4, 0.8, 6, 4),  # below: fewer
        (0.4, 0.8, 1, 4),  # above: more
        (0.0, 0.1, 0, 6),
        (1.0, 1.0, 0, 1),
        (0.65, 0.65, 0, 3),  # 0.7 and 0.6 are as close: the larger utility is taken with more nodes
    ],
)
def test_the_size_closest_to_the_middle_is_taken_unless_the_held_one_is_within(
    low: float, high: float, held: int, nodes: int
) -> None:
    assert UtilityBounds(low, high, 1, 6).size(FALLING, held) == nodes


def test_nodes_are_bounded_and_a_held_number_beyond_them_does_not_stay() -> None:
    bounds = UtilityBounds(0.4, 0.95, 3, 4)
    assert bounds.size(FALLING, 2) == 3
    assert bounds.size(FALLING, 5) == 3
    assert UtilityBounds(0.0, 0.1, 1, 4).size(FALLING) == 4


def test_a_size_that_is_worse_than_a_larger_one_does_not_hold_up() -> None:
    assert UtilityBounds(0.4, 0.6, 1, 4).size([0.9, 0.84, 0.85, 0.85]) == 4, "all above: as many as there are"
    assert UtilityBounds(0.7, 0.9, 1, 4).size([0.5, 0.2, 0.4, 0.4]) == 1, "all below: as few"


@pytest.mark.parametrize(
    ("low", "high", "least", "most"),
    [
        (0.6, 0.4, 1, 2),
        (-0.1, 0.5, 1, 2),
        (0.5, 1.1, 1, 2),
        (float("nan"), 0.5, 1, 2),
        (0.4, 0.6, 3, 2),
        (0.4, 0.6, 0, 2),
    ],
)
def test_bounds_that_contradict_are_refused(low: float, high: float, least: int, most: int) -> None:
    with pytest.raises(GoodputError, match=r"(is|are) to lie in"):
        UtilityBounds(low, high, least, most)


def phases() -> TrainingPhases:
    """Two phases on 1 or 2 nodes of 2 GPUs: the second scales better."""
    return TrainingPhases(
        gpus=2,
        useful=np.array([100.0, 300.0]),
        alone_s=np.array([40.0, 120.0]),
        seconds=np.array([[25.0, 60.0], [20.0, 40.0]]),
        samples=np.array([[125.0, 300.0], [200.0, 400.0]]),
    )


def test_a_training_adds_up_over_its_phases() -> None:
    assert phases().utilities.tolist() == [[0.8, 1.0], [0.5, 0.75]]
    fixed = phases().fixed(2)
    assert (fixed.time_s, fixed.node_s, fixed.goodput) == (60.0, 120.0, 400 / 60)
    assert fixed.efficiency == 400 / 600
    assert fixed.utility == pytest.approx((20 * 0.5 + 40 * 0.75) / 60), "the mean over time"


def test_nodes_follow_the_phases() -> None:
    scaled = phases().scaled(UtilityBounds(0.7, 0.8, 1, 2))
    assert scaled.course == (1, 2)
    assert (scaled.time_s, scaled.node_s) == (25.0 + 40.0, 25.0 + 80.0)
    assert scaled.utility == pytest.approx((25 * 0.8 + 80 * 0.75) / 105), "the mean over nodes and time"


def test_a_curve_is_a_training_of_one_phase_whose_samples_are_all_worth_the_same() -> None:
    found = phases_of_curve(((1, 100.0), (3, 200.0)), 6000, 4)
    assert found.seconds[:, 0].tolist() == [60.0, 40.0, 30.0, 30.0]
    assert found.utilities[:, 0] == pytest.approx([1, 0.75, 2 / 3, 0.5])
    assert found.fixed(3).efficiency == 1
    with pytest.raises(GoodputError, match="0 samples"):
        phases_of_curve(((1, 100.0),), 0, 4)
