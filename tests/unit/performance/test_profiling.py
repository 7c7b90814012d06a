"""The sizes on which a new program is measured first."""

from __future__ import annotations

from bftrainer.performance import profiling
from tests.support.measured_speeds import levels


def test_a_new_trainer_is_profiled_by_doublings_until_they_gain_little() -> None:
    assert profiling.next_profiling_size((), 3, 64, 2) == 3
    assert profiling.next_profiling_size(levels({3: [3.0]}), 3, 64, 2) == 6
    assert profiling.next_profiling_size(levels({3: [3.0], 6: [6.0]}), 3, 64, 2) is None
    assert profiling.next_profiling_size(levels({3: [3.0], 6: [6.0]}), 3, 10, 9) is None
    assert profiling.next_profiling_size(levels({1: [3.0], 2: [3.3]}), 1, 64, 9) is None
    assert profiling.next_profiling_size(levels({1: [3.0], 2: [6.0]}), 1, 64, 9) == 4
