"""Turns on a device, whatever its workers do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.agent.turns.table import FIRST_S, LEAST_S, TIMES, DeviceTurns

WORKERS = (1, 2, 3)
DOES = st.tuples(
    st.sampled_from(("take", "give", "gone", "hurry", "calm", "overdue")),
    st.sampled_from(WORKERS),
    st.floats(0.0, 100.0),
)


class Workers:
    """What workers believe of their turns, kept beside the table in the simplest way: who asked first."""

    def __init__(self) -> None:
        self.turns, self.now = DeviceTurns(), 0.0
        self.asked: list[int] = []  # that have asked and not been let compute yet, in order

    def do(self, what: str, worker: int, later: float) -> None:
        self.now += later
        before = self.turns
        if what == "overdue":
            self.turns = before.overdue(self.now)
        elif what == "calm":
            self.turns = before.calm(worker)
        else:
            self.turns = getattr(before, what)(worker, self.now)
        if what == "take" and worker not in self.asked and not before.may_compute(worker):
            self.asked.append(worker)
        if what == "gone" and worker in self.asked:
            self.asked.remove(worker)
        self.asked = [own for own in self.asked if not self.turns.may_compute(own)]


@given(st.lists(DOES, max_size=60))
def test_a_device_has_one_holder_nobody_is_forgotten_and_who_asked_first_is_first(
    story: list[tuple[str, int, float]],
) -> None:
    world = Workers()
    for step in story:
        before = world.turns
        world.do(*step)
        turns = world.turns
        assert list(turns.waiting) == world.asked
        assert turns.holder is not None or not turns.waiting, "nobody waits for a device that is free"
        assert turns.holder not in turns.waiting
        assert (turns.waited_for is not None) == bool(turns.waiting)
        assert not set(turns.waiting) & turns.free, "who leaves waits for nobody"
        if turns.holder not in (None, before.holder) and before.holder is not None:
            line = [own for own in before.waiting if own == turns.holder or own in turns.waiting]
            assert turns.holder == line[0], "the first in line is next"


@given(st.lists(DOES, max_size=30), st.sampled_from(WORKERS))
def test_who_asks_gets_its_turn_when_all_others_have_given_or_lost_theirs(
    story: list[tuple[str, int, float]], worker: int
) -> None:
    world = Workers()
    for step in story:
        world.do(*step)
    world.do("take", worker, 0.0)
    for _ in WORKERS:
        if not world.turns.may_compute(worker):
            world.do("overdue", worker, FIRST_S + TIMES * 100.0 * len(story) + LEAST_S)
    assert world.turns.may_compute(worker)


def test_a_turn_is_taken_away_after_many_times_its_usual_length() -> None:
    turns = DeviceTurns().take(1, 0.0).give(1, 3.0).take(1, 10.0)
    assert turns.due is None, "alone, a worker may compute for as long as it likes"
    turns = turns.take(2, 100.0)
    assert turns.due == 100.0 + 3.0 * TIMES
    assert turns.overdue(129.9) is turns
    late = turns.overdue(130.0)
    assert late.holder == 2
    assert late.give(1, 140.0).holder == 2, "one that has lost its turn cannot give it"


def test_the_first_turn_of_a_worker_may_take_long_and_short_ones_a_little() -> None:
    turns = DeviceTurns().take(1, 0.0).take(2, 1.0)
    assert turns.due == 1.0 + FIRST_S
    turns = turns.give(1, 1.5).give(2, 1.6).take(2, 2.0).take(1, 3.0)
    assert turns.due == 3.0 + LEAST_S


def test_who_is_about_to_leave_waits_for_nobody_and_keeps_nobody_waiting() -> None:
    turns = DeviceTurns().take(1, 0.0).take(2, 0.0).hurry(2, 0.1)
    assert turns.may_compute(2) and turns.holder == 1
    turns = turns.take(2, 0.2).take(3, 0.2).hurry(1, 0.3)
    assert turns.holder == 3 and turns.may_compute(1)
    assert not turns.calm(2).take(2, 0.4).may_compute(2)
