"""The sizes on which a new program is measured first."""

from __future__ import annotations

from bftrainer.model.sizes import AllowedSizes
from bftrainer.performance.estimate import next_profiling_size
from tests.support.measured_speeds import levels


def test_a_new_trainer_is_profiled_by_doublings_until_they_gain_little() -> None:
    assert next_profiling_size((), 3, 64, 2) == 3
    assert next_profiling_size(levels({3: [3.0]}), 3, 64, 2) == 6
    assert next_profiling_size(levels({3: [3.0], 6: [6.0]}), 3, 64, 2) is None
    assert next_profiling_size(levels({3: [3.0], 6: [6.0]}), 3, 10, 9) is None
    assert next_profiling_size(levels({1: [3.0], 2: [3.3]}), 1, 64, 9) is None
    assert next_profiling_size(levels({1: [3.0], 2: [6.0]}), 1, 64, 9) == 4


def test_of_the_allowed_sizes_those_next_to_doublings_are_profiled() -> None:
    def profiled(sizes: AllowedSizes, n_min: int, n_max: int) -> list[int]:
        found: list[int] = []
        while size := next_profiling_size(levels({n: [float(n)] for n in found}), n_min, n_max, 9, sizes):
            found.append(size)
        return found

    assert profiled(AllowedSizes(listed=(1, 2, 3, 5, 7, 8)), 1, 8) == [1, 2, 3, 5, 8]
    assert profiled(AllowedSizes(listed=(1, 8)), 1, 8) == [1, 8]
    assert profiled(AllowedSizes(multiple_of=3), 3, 24) == [3, 6, 12, 24]
    assert profiled(AllowedSizes(), 3, 10) == [3, 6]
