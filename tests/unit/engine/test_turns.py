"""When trainers that wait will probably get nodes."""

from __future__ import annotations

from bftrainer.engine.queueing.turns import WaitingTurn, turns


def turn(
    trainer: int, least: int = 1, most: int = 1, speed: float | None = 1.0, work: float = 60.0
) -> WaitingTurn:
    """A trainer that does `work` at `speed` for each node."""
    return WaitingTurn(trainer, least, most, lambda nodes: None if speed is None else work / (speed * nodes))


def test_those_that_wait_get_nodes_in_their_order_as_others_end() -> None:
    found = turns(0, None, [(1, 100.0), (1, 30.0)], [turn(1), turn(2), turn(3)])
    assert found == {1: 30.0, 2: 90.0, 3: 100.0}


def test_nodes_that_are_free_go_to_the_first_at_once() -> None:
    found = turns(3, None, [(2, 50.0)], [turn(1, least=2, most=4), turn(2, least=2), turn(3)])
    assert found == {1: 0.0, 2: 20.0, 3: 20.0}


def test_after_a_trainer_of_which_no_end_is_known_nothing_is_known_that_needs_its_nodes() -> None:
    assert turns(0, None, [(1, None)], [turn(1)]) == {}
    assert turns(0, None, [(1, 40.0), (1, None)], [turn(1, speed=None), turn(2)]) == {1: 40.0}
    assert turns(1, None, [(1, None)], [turn(1), turn(2)]) == {1: 0.0, 2: 60.0}


def test_places_are_waited_for_as_nodes_are() -> None:
    assert turns(5, 2, [(1, 40.0)], [turn(1), turn(2), turn(3)]) == {1: 0.0, 2: 40.0, 3: 60.0}


def test_nobody_waits_for_a_trainer_that_needs_more_nodes_than_there_are() -> None:
    assert turns(0, None, [(2, 40.0)], [turn(1, least=3), turn(2)]) == {2: 40.0}
