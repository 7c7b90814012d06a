"""Which bounds were hit in the last hour."""

from __future__ import annotations

import pytest

from bftrainer.telemetry.bounds import MINUTES, NAMED, BoundHits, Hits
from bftrainer.telemetry.telemetry import Telemetry


def test_hits_are_counted_for_an_hour_with_what_hit_most() -> None:
    now = [0.0]
    bounds = BoundHits(lambda: now[0])
    bounds.hit("max_connections", "ann")
    now[0] = 1800.0
    bounds.hit("max_connections", "bob", 2)
    bounds.hit("disk", "")
    assert bounds.last_hour() == [Hits("disk", 1, ""), Hits("max_connections", 3, "bob")]
    assert [hits.text for hits in bounds.last_hour()] == [
        "disk: once",
        "max_connections: 3 times, most by bob",
    ]
    now[0] = 3600.0
    assert bounds.last_hour() == [Hits("disk", 1, ""), Hits("max_connections", 2, "bob")]
    now[0] = 5400.0
    assert bounds.last_hour() == []


def test_memory_is_bounded_whatever_hits() -> None:
    now = [0.0]
    bounds = BoundHits(lambda: now[0])
    for n in range(10_000):
        now[0] += 1.0
        bounds.hit("max_connections", f"uid {n}")
    held = bounds._by_bound["max_connections"].minutes
    assert len(held) <= MINUTES and all(len(minute.by) <= NAMED + 1 for minute in held)
    (hits,) = bounds.last_hour()
    assert 3500 <= hits.times <= 3600
    assert hits.most_by.startswith("uid "), "others are none that can be asked"


def test_a_hit_is_logged_with_what_the_admin_needs(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.bounded("max_connections", "uid 1003", at=64)
    (record,) = caplog.records
    assert (record.levelname, record.__dict__["event"]) == ("WARNING", "bound_hit")
    told = {"bound": "max_connections", "by": "uid 1003", "times": None, "at": 64}
    assert record.__dict__["fields"] == told
    assert [hits.text for hits in telemetry.bounds.last_hour()] == ["max_connections: once, most by uid 1003"]
