"""What trainers of one program learn from each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.events import Measured
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
        (".", "b"): Observations(),
    }
    assert replace(first, observed=Observations()) == trainer(1, "a")
