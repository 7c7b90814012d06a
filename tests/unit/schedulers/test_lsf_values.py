"""Single values as LSF prints them."""

from __future__ import annotations

from datetime import datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.lsf import values


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


NOW = at("2026-01-02 12:00")
HOSTS = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)
ANY_TEXT = st.text(max_size=80)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("25 hours 42 minutes 51 seconds", 92571.0),
        ("1 hours 11 minutes 50 seconds", 4310.0),
        ("22 minutes 55 seconds", 1375.0),
        ("6 hours 37 minutes 0 seconds", 23820.0),
        ("7 seconds", 7.0),
        ("1 hour 1 minute 1 second", 3661.0),
        ("UNLIMITED", inf),
        ("", None),
        ("soon", None),
        ("1 hours 99", None),
    ],
)
def test_lengths_of_windows(text: str, seconds: float | None) -> None:
    assert values.window_s(text) == seconds


def test_other_spans() -> None:
    assert values.left_s("0:1 L") == 60.0
    assert values.left_s("26:30 L") == 26.5 * 3600
    assert values.left_s("02") is None


@pytest.mark.parametrize(
    ("text", "moment", "rounded_s"),
    [
        ("Sep 30 20:32:14 2026", at("2026-09-30 20:32:14"), 1.0),
        ("Oct 14 17:52:15 2026 L", at("2026-10-14 17:52:15"), 1.0),
        ("Jan  1 16:57", at("2026-01-01 16:57"), 60.0),
        ("Dec 30 16:57", at("2025-12-30 16:57"), 60.0),
        ("Dec 30 16:57 E", at("2025-12-30 16:57"), 60.0),
        ("12/31-14:46:42", at("2025-12-31 14:46:42"), 1.0),
        ("01/09 10:06:23", at("2026-01-09 10:06:23"), 1.0),
        ("Wed Jan 21 22:12:59", at("2026-01-21 22:12:59"), 1.0),
    ],
)
def test_times_without_year_or_seconds(text: str, moment: float, rounded_s: float) -> None:
    assert values.moment(text, NOW) == values.Moment(moment, rounded_s)


@pytest.mark.parametrize(
    "text",
    ["", "-", "now", "Foo 12 10:00", "Feb 30 10:00", "Jan 1 25:00", "13/01-10:00:00", "Xyz Jan 1 10:00"],
)
def test_what_is_no_time(text: str) -> None:
    assert values.moment(text, NOW) is None


def test_hosts_of_jobs_are_counted_in_their_order() -> None:
    assert values.exec_hosts("16*c033:16*c024") == (("c033", 16), ("c024", 16))
    assert values.exec_hosts("c033:12*c024") == (("c033", 1), ("c024", 12))
    assert values.exec_hosts("c1:c1:c2:c1") == (("c1", 3), ("c2", 1))
    assert values.exec_hosts("-") == values.exec_hosts("") == ()
    assert values.exec_hosts("99999999999*c1:0*c2:x*c3:c 4:*") == (), "no such number of slots, and no host"


def test_launch_hosts_are_dropped() -> None:
    hosts = values.exec_hosts("batch1:42*a01n10:42*a01n11")
    assert values.without_launch(hosts, ("batch*", "login?")) == (("a01n10", 42), ("a01n11", 42))


@given(st.lists(st.tuples(HOSTS, st.integers(1, 64)), max_size=8), st.booleans())
def test_whatever_the_form_the_slots_are_the_same(pairs: list[tuple[str, int]], short: bool) -> None:
    words = [f"{n}*{host}" if short else ":".join([host] * n) for host, n in pairs]
    want: dict[str, int] = {}
    for host, n in pairs:
        want[host] = want.get(host, 0) + n
    assert dict(values.exec_hosts(":".join(words))) == want


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_leading_zeros_are_dropped_and_others_stay(hours: int, minutes: int, seconds: int) -> None:
    parts = [f"{hours} hours", f"{minutes} minutes", f"{seconds} seconds"]
    while len(parts) > 1 and parts[0].startswith("0 "):
        del parts[0]
    assert values.window_s(" ".join(parts)) == 3600 * hours + 60 * minutes + seconds


@given(ANY_TEXT)
def test_any_text_is_a_value_or_none(text: str) -> None:
    for read in (values.window_s, values.left_s, values.number):
        found = read(text)
        assert found is None or found >= 0
    values.moment(text, NOW)
    assert all(slots > 0 for _, slots in values.exec_hosts(text))
    assert 0 <= values.count(text) <= values.MOST_SLOTS
