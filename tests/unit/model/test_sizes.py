"""Which node counts are allowed, against their definition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.allocate import value
from bftrainer.model.problem import Candidate
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import TrainerSpec

LISTS = st.frozensets(st.integers(1, 30), min_size=1).map(lambda found: tuple(sorted(found)))
SIZES = st.one_of(
    st.builds(AllowedSizes, listed=LISTS), st.builds(AllowedSizes, multiple_of=st.integers(1, 12))
)


def among(sizes: AllowedSizes, n: int) -> bool:
    return n in sizes.listed if sizes.listed else n % sizes.multiple_of == 0


@pytest.mark.parametrize(
    "wrong", [{"listed": (2, 1)}, {"listed": (0, 1)}, {"listed": (1, 1)}, {"multiple_of": 0}]
)
def test_what_is_no_set_of_sizes_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no sizes"):
        AllowedSizes(**wrong)


@given(SIZES, st.integers(-5, 40))
def test_the_sizes_next_to_a_number(sizes: AllowedSizes, n: int) -> None:
    assert sizes.floor(n) == max((k for k in range(1, n + 1) if among(sizes, k)), default=0)
    if n >= 0:
        assert sizes.above(n) == min((k for k in range(n + 1, 60) if among(sizes, k)), default=0)


@given(SIZES, st.integers(1, 30), st.integers(0, 30), st.integers(-5, 40))
def test_what_specs_and_candidates_allow(sizes: AllowedSizes, least: int, more: int, n: int) -> None:
    most = least + more
    within = [k for k in range(least, most + 1) if among(sizes, k)]
    spec = TrainerSpec(name="a", command=("x",), n_min=least, n_max=most, sizes=sizes)
    candidate = Candidate(
        trainer=1, n_min=least, n_max=most, current=max(n, 0), curve=((1, 1.0),), sizes=sizes
    )
    assert spec.fitting(n) == candidate.fitting(n) == max((k for k in within if k <= n), default=0)
    assert spec.allows(n) == (n in within)
    assert candidate.allows(n) == (n in (0, *within))
    if n >= 0:
        assert candidate.above(n) == min((k for k in within if k > n), default=0)
        assert candidate.trains == (n >= least and among(sizes, n))
    allowed = [k for k, v in enumerate(value.tables((candidate,), 40, 1.0)[0]) if v > float("-inf")]
    assert allowed == [0, *(k for k in within if k <= 40)]


@given(SIZES, st.integers(1, 30))
def test_sizes_are_about_doubled(sizes: AllowedSizes, n: int) -> None:
    twice = sizes.doubled(n)
    assert twice == 0 or twice > n
    assert twice == sizes.floor(2 * n) or not any(among(sizes, k) for k in range(n + 1, 2 * n + 1))
    assert EVERY_SIZE.doubled(n) == 2 * n
