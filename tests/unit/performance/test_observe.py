"""What is kept of measurements."""

from __future__ import annotations

import math

from bftrainer.model.trainer import Observations, Observed
from bftrainer.performance import observe
from tests.support.measured_speeds import seen


def test_what_is_no_measurement_is_left_out() -> None:
    for rate in (math.nan, math.inf, -1.0, 0.0):
        assert observe.with_speed(Observations(), None, 1, rate) == Observations()
    assert observe.with_speed(Observations(), None, 0, 1.0) == Observations()
    assert observe.added(Observed(), math.nan) == Observed()


def test_all_windows_are_counted_and_the_latest_kept() -> None:
    ((_, windows),) = observe.sizes(seen({1: [float(i) for i in range(1, 101)]}))
    assert (windows.count, len(windows.recent), windows.recent[-1]) == (100, observe.KEPT, 100.0)
