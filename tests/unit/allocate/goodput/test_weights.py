"""Weights by service and by work, worked out by hand."""

from __future__ import annotations

import pytest

from bftrainer.allocate.goodput.weights import by_rank, by_service, expected_work, service_level


def test_the_most_work_ranks_lowest_and_ties_go_by_order() -> None:
    assert by_rank([10.0, 30.0, 20.0, 30.0]).tolist() == [4, 1, 3, 2]
    assert by_rank([]).tolist() == []


def test_service_counts_beyond_the_threshold_alone() -> None:
    assert by_service([0.0, 600.0, 2400.0, 60_000.0], 600.0, 0.5).tolist() == pytest.approx([1, 1, 0.5, 0.1])
    assert by_service([0.0, 1e9], 600.0, 0.0).tolist() == [1, 1]


def test_two_long_trainers_that_had_about_as_much_are_on_one_level() -> None:
    assert [service_level(served_s) for served_s in (0, 59, 60, 180, 420)] == [0, 0, 1, 2, 3]
    assert service_level(500_000) == service_level(600_000)


def test_who_has_not_said_what_is_left_is_taken_to_have_as_much_to_do_as_it_had() -> None:
    assert [expected_work(served_s, None) for served_s in (0.0, 59.0, 60.0, 180.0)] == [0, 0, 60, 180]
    assert expected_work(500_000.0, None) == expected_work(600_000.0, None) > 250_000
    assert expected_work(1e9, 7.0) == 7.0
    assert expected_work(1e9, 0.0) == 0.0
