"""What two ranks' traces say of each other, for any optimizer, rate and way to average."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.elastic.checks.traces import (
    STARTS,
    WINDOW,
    Apart,
    Trace,
    from_text,
    judged,
    to_text,
    window_of,
)


def traces(
    steps: int, average_every: int | None, rate: float, noise: float = 0.0, other_seed: int = 1
) -> list[Trace]:
    """Of two ranks that walk at random from the same weights, and may average."""
    draws = [random.Random(seed) for seed in (0, other_seed)]
    weights = [[1.0 + i for i in range(16)] for _ in draws]
    found = [Trace("layout") for _ in draws]
    for step in range(steps):
        for rank, own in enumerate(found):
            own.note(step, [w * (1 + noise * rank) for w in weights[rank]])
        weights = [[w + draw.gauss(0, rate) for w in own] for own, draw in zip(weights, draws, strict=True)]
        if average_every is not None and (step + 1) % average_every == 0:
            mean = [(a + b) / 2 for a, b in zip(*weights, strict=True)]
            weights = [list(mean), list(mean)]
    return found


@pytest.mark.parametrize("rate", [1.0, 1e-2, 2e-3])
def test_ranks_that_never_average_are_apart(rate: float) -> None:
    found = judged(*traces(WINDOW, None, rate))
    assert isinstance(found, Apart) and found.steps == WINDOW - 1 and found.mine != found.theirs


RATES = st.sampled_from([1.0, 1e-2, 1e-5])


@given(every=st.integers(1, WINDOW - 3), steps=st.integers(WINDOW, 700), rate=RATES)
def test_ranks_that_average_within_a_window_are_one(every: int, steps: int, rate: float) -> None:
    assert judged(*traces(steps, every, rate), at_end=True) is True


@pytest.mark.parametrize("every", [50, 64, 100, 128, 250, 500])
def test_ranks_that_average_seldom_are_one_in_the_end(every: int) -> None:
    assert isinstance(judged(*traces(WINDOW, every, 1e-2)), Apart)
    assert judged(*traces(535, every, 1e-2)) is True


@pytest.mark.parametrize("noise", [1e-7, 1e-5])
def test_rounding_says_nothing(noise: float) -> None:
    """Also where it is never taken back."""
    assert judged(*traces(WINDOW, 1, 1e-2, noise)) is None


def test_weights_that_stand_still_say_nothing() -> None:
    """As at the begin of a warm-up."""
    assert judged(*traces(WINDOW, None, 0.0)) is None


def test_a_few_steps_say_something_at_the_end_alone() -> None:
    pair = traces(WINDOW - 1, None, 1.0)
    assert judged(*pair) is None
    assert isinstance(judged(*pair, at_end=True), Apart)
    assert judged(*traces(3, None, 1.0), at_end=True) is None


def test_ranks_that_go_apart_later_are_found() -> None:
    together, apart = traces(700, 1, 1e-2), traces(700, None, 1e-2)
    for one, other in zip(together, apart, strict=True):
        one.windows[STARTS[-1]] = other.windows[STARTS[-1]]
    assert isinstance(judged(*together), Apart)


def test_ranks_that_have_other_layers_are_not_compared() -> None:
    one, other = traces(WINDOW, None, 1.0)
    other.layout = "another"
    assert judged(one, other, at_end=True) is None


def test_ranks_that_do_not_wait_for_each_other_are_compared_in_the_first_steps() -> None:
    fast, slow = traces(1_020, None, 1e-2)[0], traces(120, None, 1e-2)[1]
    assert isinstance(judged(fast, slow), Apart)
    assert set(fast.windows) == {0, 1_000}, "no more is kept"


def test_what_is_no_number_says_nothing() -> None:
    one, other = (Trace("layout") for _ in range(2))
    for step in range(WINDOW):
        one.note(step, [float("nan")] * 16)
        other.note(step, [float(step)] * 16)
    assert judged(one, other, at_end=True) is None


def test_windows_begin_at_round_numbers() -> None:
    noted = [step for step in range(3_100) if window_of(step) is not None]
    assert sorted({window_of(step) for step in noted}) == [0, 100, 500, 1_000, 2_000, 3_000]
    assert len(noted) == 6 * WINDOW


@given(rate=st.floats(0, 10), steps=st.integers(0, 40), data=st.text())
def test_what_a_rank_tells_is_read_as_it_was(rate: float, steps: int, data: str) -> None:
    pair = traces(steps, None, rate)
    assert from_text(to_text(pair, data)) == (pair, data)


ANYTHING = st.recursive(
    st.none() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["traces", "data"]), inner),
)


@given(st.text() | ANYTHING.map(json.dumps))
def test_what_a_stranger_tells_is_refused(text: str) -> None:
    try:
        traces_of, data = from_text(text)
    except ValueError:
        return
    assert isinstance(data, str) and all(isinstance(each, Trace) for each in traces_of)
