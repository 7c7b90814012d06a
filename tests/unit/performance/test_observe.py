"""What is kept of measurements."""

from __future__ import annotations

import math

from bftrainer.model.trainer import Cost, Observations, Observed
from bftrainer.performance import observe
from tests.support.measured_speeds import seen


def test_what_is_no_measurement_is_left_out() -> None:
    for rate in (math.nan, math.inf, -1.0, 0.0, 1e-7, 1e13):
        assert observe.with_speed(Observations(), None, 1, rate) == Observations()
    assert observe.with_speed(Observations(), None, 0, 1.0) == Observations()
    for seconds in (math.nan, math.inf, -1.0, 86_401.0):
        for cost in (Cost(stall_s=seconds), Cost(init_s=seconds), Cost(stall_s=seconds, init_s=1.0)):
            assert observe.with_costs(Observations(), cost, cost) == Observations()


def test_half_a_measurement_of_an_earlier_version_ends_no_restart() -> None:
    odd = Observations(up_stall_s=Observed(2, (1.0, 2.0)), up_init_s=Observed(1, (3.0,)))
    assert observe.merged(Observations(), odd).up_init_s.recent == (3.0,)


def test_all_windows_are_counted_and_the_latest_kept() -> None:
    ((_, windows),) = observe.sizes(seen({1: [float(i) for i in range(1, 101)]}))
    assert (windows.count, len(windows.recent), windows.recent[-1]) == (100, observe.KEPT, 100.0)
