"""Interventions of a rehearsal: a run is cut at one step, and each rank is killed once."""

from __future__ import annotations

from pathlib import Path

from bftrainer.elastic.recorded.directions import CUT, Directions
from bftrainer.elastic.recorded.interventions import is_cut, is_to_die, is_to_die_in_the_end


def test_the_step_of_a_cut_is_the_first_that_is_long_enough(tmp_path: Path) -> None:
    told = Directions(least=3, most_s=1.0)
    cuts = [is_cut(told, tmp_path, step, trained_s=step) for step in range(1, 6)]
    assert cuts == [False, False, True, True, True]
    assert (tmp_path / CUT).read_text() == "3"


def test_a_rank_is_killed_once_at_its_step_and_rank_0_once_in_the_end(tmp_path: Path) -> None:
    told = Directions(kills=[(4, 1)], kill_at_end=9)
    moments = ((3, 1), (4, 0), (4, 1), (4, 1))
    assert [is_to_die(told, tmp_path, *moment) for moment in moments] == [False, False, True, False]
    moments = ((8, 0), (9, 1), (9, 0), (9, 0))
    assert [is_to_die_in_the_end(told, tmp_path, *moment) for moment in moments] == [
        False,
        False,
        True,
        False,
    ]
