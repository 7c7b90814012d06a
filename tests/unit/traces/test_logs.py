"""Generated logs, and where a real one is most worth watching."""

from __future__ import annotations

from itertools import islice

from bftrainer.traces.intervals import Interval, liveliest
from bftrainer.traces.synthetic import onoff


def test_a_generated_log_is_a_possible_one_and_repeats_itself() -> None:
    idle: set[str] = set()
    last = -1.0
    for change in islice(onoff.changes(4, seed=3), 500):
        assert change.time >= last
        assert change.left <= idle and not change.joined & idle
        idle = (idle - change.left) | change.joined
        assert idle <= onoff.names(4)
        last = change.time
    assert list(islice(onoff.changes(4, seed=3), 50)) == list(islice(onoff.changes(4, seed=3), 50))
    assert list(islice(onoff.changes(4, seed=3), 50)) != list(islice(onoff.changes(4, seed=4), 50))


def test_a_generated_log_has_the_means_that_were_asked_for() -> None:
    node_time, last, idle, end = 0.0, 0.0, 0, 200_000.0
    for change in onoff.changes(8, idle_s=30.0, busy_s=10.0):
        if change.time > end:
            break
        node_time += (change.time - last) * idle
        idle += len(change.joined) - len(change.left)
        last = change.time
    assert abs(node_time / last / 8 - 0.75) < 0.02


def test_liveliest_finds_the_window_with_most_useful_fragments() -> None:
    quiet = [Interval(0.0, 500.0, "a")]
    busy = [Interval(1000.0 + 10 * i, 1000.0 + 10 * i + 8, "b") for i in range(5)]
    short = [Interval(2000.0 + i, 2000.5 + i, "a") for i in range(50)]
    other = [Interval(3000.0 + 10 * i, 3008.0 + 10 * i, "c") for i in range(50)]
    log = [*quiet, *busy, *short, *other]
    assert liveliest(log, frozenset("ab"), span_s=100.0, least_s=5.0) == 1000.0
    assert liveliest(log, frozenset("ab"), span_s=100.0, least_s=1e6) == 0.0
