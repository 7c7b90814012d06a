"""Pilots of two users are never on one node at a time, where the site wants that."""

from __future__ import annotations

from bftrainer.nodes.hold import alone, in_the_way


def test_a_user_waits_until_the_pilots_of_others_have_left_the_node() -> None:
    wanted = {"n1:0": "ann", "n2:0": "ann", "n3:0": "ann"}
    there = {"n1:1": "eve", "n2:1": "ann"}
    assert alone(wanted, there) == {"n2:0": "ann", "n3:0": "ann"}


def test_pilots_that_nobody_wants_any_more_go_at_once_where_another_user_is_to_be() -> None:
    there = {"n1:1": "eve", "n1:2": "ann", "n2:1": "eve", "n3:0": "eve"}
    assert in_the_way({"n1:0": "ann", "n3:0": "eve", "n3:1": "eve"}, there) == {"n1:1": "ann"}
    assert in_the_way({"n1:0": "ann", "n1:1": "eve"}, there) == {"n1:2": "eve"}, "its own user wants it"
