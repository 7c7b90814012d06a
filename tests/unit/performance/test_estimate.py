"""What trainers of one program learn from each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.events import Measured
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Cost, Observations, Trainer, TrainerSpec
from bftrainer.performance import estimate


def trainer(id_: int, *command: str) -> Trainer:
    spec = TrainerSpec(name=f"t{id_}", command=command, n_min=1, n_max=64)
    return Trainer(id=id_, spec=spec, submitted_at=0.0)


def test_trials_of_one_program_begin_with_what_the_others_have_shown() -> None:
    first, second, other = trainer(1, "python", "a.py", "1"), trainer(2, "python", "a.py"), trainer(3, "b")
    programs: estimate.SharedObservations = {}
    for n in (1, 2, 4):
        event = Measured(time=0.0, trainer=1, generation=0, point=(n, 10.0 * n), up=Cost(stall_s=7.0))
        first, programs = estimate.with_measurement(first, programs, event, "")
    trainers = (first, second, other)
    found = [estimate[None] for estimate in estimate.estimates_of(trainers, programs)]
    assert [estimate.n_max for estimate in found] == [8, 8, 2]
    assert found[1].points == found[0].points
    assert [own.up.stall_s for own in estimate.costs_of(trainers, programs)] == [7.0, 7.0, 7.0]
    slow = Measured(time=0.0, trainer=2, generation=0, point=(4, 8.0))
    second, programs = estimate.with_measurement(second, programs, slow, "")
    estimated = estimate.estimates_of((second,), programs)[0][None]
    assert dict(estimated.points)[4] == pytest.approx(8.0)  # its own observations count first
    assert dict(estimated.points)[8] < 30.0


def test_programs_are_remembered_from_what_trainers_were_observed_to_do() -> None:
    first, programs = trainer(1, "a"), dict[tuple[str, ...], Observations]()
    event = Measured(time=0.0, trainer=1, generation=0, point=(2, 5.0), up=Cost(init_s=1.0), down=Cost())
    first, learnt = estimate.with_measurement(first, programs, event, "")
    assert estimate.observations_by_program([first, trainer(2, "a"), trainer(3, "b")]) == {
        **learnt,
        ("", ".", "b"): Observations(),
    }
    assert replace(first, observed=Observations()) == trainer(1, "a")


def ones(user: str, id_: int, rate: float | None = None) -> Trainer:
    """A trainer of a user, in the folder and with the command of all others, measured on one node or not."""
    own = trainer(id_, "python", "a.py")
    own = replace(own, spec=replace(own.spec, user=user))
    if rate is None:
        return own
    event = Measured(time=0.0, trainer=id_, generation=0, point=(1, rate), up=Cost(stall_s=rate))
    return estimate.with_measurement(own, {}, event, "")[0]


def test_what_one_users_trainers_show_says_nothing_of_anothers() -> None:
    """Not even where folder and command are the same: neither is read by others, nor spoilt."""
    anns, bobs = ones("ann", 1), ones("bob", 2)
    programs: estimate.SharedObservations = {}
    for n in (1, 2, 4):
        event = Measured(time=0.0, trainer=1, generation=0, point=(n, 777.0 * n), up=Cost(stall_s=7.0))
        anns, programs = estimate.with_measurement(anns, programs, event, "")
    alone = estimate.estimates_of((bobs,), programs)[0][None]
    assert (alone.points, alone.n_max) == (((2, 2.0),), 2)
    assert estimate.costs_of((bobs,), programs)[0].up.stall_s == 0.5
    assert estimate.estimates_of((ones("ann", 3),), programs)[0][None].n_max == 8


def test_many_trainers_of_one_user_make_no_type() -> None:
    """What is assumed of a new trainer is the median of users, of which each counts once."""
    liars = [ones("eve", i, 1e9) for i in range(10, 60)]
    honest = [ones("ann", 1, 100.0), ones("bob", 2, 90.0), ones("bob", 3, 110.0)]
    assert estimate.typical_speed([*liars, *honest], {}) == pytest.approx(100.0)
    assert estimate.costs_of((ones("eve", 4), *liars, *honest), {})[0].up.stall_s == 100.0
    assert estimate.typical_speed([ones("ann", 1, 1.0), ones("ann", 2, 4.0)], {}) == pytest.approx(2.5)


def test_a_user_makes_others_forget_nothing_and_memory_does_not_grow_for_ever() -> None:
    programs: estimate.SharedObservations = {}
    event = Measured(time=0.0, trainer=1, generation=0, point=(1, 1.0))
    for i, user in [(0, "ann"), *((i, "eve") for i in range(estimate.MOST_PROGRAMS + 50))]:
        own = trainer(i, "python", f"{i}.py")
        own = replace(own, spec=replace(own.spec, user=user))
        _, programs = estimate.with_measurement(own, programs, event, "")
    assert ("ann", ".", "python", "0.py") in programs
    assert len(programs) == estimate.MOST_PROGRAMS + 1
    assert ("eve", ".", "python", "49.py") not in programs
    assert ("eve", ".", "python", "50.py") in programs


def test_the_next_allowed_size_may_be_asked_for_however_much_larger_it_is() -> None:
    """Of 1, 8 and 64 nodes, twice the largest observed size is none."""
    first = trainer(1, "a")
    first = replace(first, spec=replace(first.spec, sizes=AllowedSizes(listed=(1, 8, 64))))
    programs: estimate.SharedObservations = {}
    asked = []
    for n in (1, 8):
        event = Measured(time=0.0, trainer=1, generation=0, point=(n, 10.0 * n))
        asked.append(estimate.estimates_of((first,), programs)[0][None].n_max)
        first, programs = estimate.with_measurement(first, programs, event, "")
    asked.append(estimate.estimates_of((first,), programs)[0][None].n_max)
    assert asked == [2, 8, 64]


def test_a_program_is_profiled_on_allowed_sizes() -> None:
    first = trainer(1, "a")
    first = replace(first, spec=replace(first.spec, sizes=AllowedSizes(listed=(1, 3, 64))))
    programs: estimate.SharedObservations = {}
    bounds = []
    for n in (1, 3):
        estimates = estimate.estimates_of((first,), programs)[0]
        bounds.append(estimate.limits(first, estimates, programs, 3, 0.0))
        event = Measured(time=0.0, trainer=1, generation=0, point=(n, 10.0 * n))
        first, programs = estimate.with_measurement(first, programs, event, "")
        first = replace(first, nodes=frozenset(f"n{i}" for i in range(n)))
    assert bounds == [(1, 1), (1, 3)]
