"""When a trainer will probably end, and how sure that is."""

from __future__ import annotations

import pytest

from bftrainer.model.text import duration
from bftrainer.performance.outlook import Outlook, after_waiting, outlook


def test_speed_now_best_speed_and_the_past_are_told_apart() -> None:
    found = outlook(1200.0, done=600.0, age_s=600.0, rate=2.0, best=4.0)
    assert found == Outlook(early=300.0, likely=600.0, late=1200.0)


def test_a_trainer_that_is_faster_than_expected_is_not_expected_to_slow_down() -> None:
    found = outlook(1200.0, done=60_000.0, age_s=600.0, rate=2.0, best=1.0)
    assert found == Outlook(early=600.0, likely=600.0, late=600.0)


def test_what_is_not_known_is_not_told() -> None:
    assert outlook(1200.0, done=0.0, age_s=600.0, rate=None) == Outlook()
    assert outlook(1200.0, done=50.0, age_s=5.0, rate=2.0) == Outlook(likely=600.0)
    waits = outlook(1200.0, done=60.0, age_s=600.0, rate=None, best=4.0)
    assert waits == Outlook(early=300.0, late=12_000.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (720, "12 min"),
        (5400, "1.5 h"),
        (36_000, "10 h"),
        (181_440, "2.1 d"),
    ],
)
def test_spans_have_two_digits_that_count(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_trainer_that_waits_ends_after_its_wait() -> None:
    past = outlook(1200.0, done=0.0, age_s=600.0, rate=None, best=8.0)
    found = after_waiting(past, 1200.0, waits_s=100.0, usual=4.0, slowest=1.0)
    assert found == Outlook(early=150.0, likely=400.0, late=1300.0)
    ran = outlook(1200.0, done=60.0, age_s=600.0, rate=None)
    assert after_waiting(ran, 1200.0, waits_s=100.0, usual=4.0, slowest=1.0).late == 12_000.0
