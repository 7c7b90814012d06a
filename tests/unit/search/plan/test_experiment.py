"""The stages of searches."""

from __future__ import annotations

import pytest

from bftrainer.search.plan.model.experiment import (
    Experiment,
    ExperimentError,
    Stage,
    by_rungs,
    hyperband,
    successive_halving,
)


def pairs(experiment: Experiment) -> list[tuple[int, float]]:
    """Trials and iterations, stage by stage."""
    return [(stage.trials, stage.iterations) for stage in experiment.stages]


def test_successive_halving_has_the_published_stages() -> None:
    """Table 3 of RubberBand: epochs 0-1, 1-4, 4-13 and 13-50 with 32, 10, 3 and 1 trials."""
    assert pairs(successive_halving(32, 1, 50, 3)) == [(32, 1), (10, 3), (3, 9), (1, 37)]


@pytest.mark.parametrize(("trials", "most", "stages"), [(64, 508, 7), (512, 4096, 10)])
def test_successive_halving_reaches_the_most_iterations(trials: int, most: float, stages: int) -> None:
    found = pairs(successive_halving(trials, 4, most, 2))
    assert len(found) == stages
    assert sum(iterations for _, iterations in found) == most
    assert [n for n, _ in found] == [trials // 2**k for k in range(stages)]


def test_successive_halving_ends_at_the_most_iterations_with_trials_left() -> None:
    assert pairs(successive_halving(64, 4, 10, 2)) == [(64, 4), (32, 6)]


def test_rungs_count_from_the_beginning_of_a_trial() -> None:
    assert pairs(by_rungs(9, (1, 3, 10), 3)) == [(9, 1), (3, 2), (1, 7)]


def test_hyperband_has_the_published_brackets() -> None:
    """Table 1 of Li et al. (2018), R = 81 and eta = 3: their r_i counts from the beginning."""
    found = [pairs(bracket) for bracket in hyperband(81, 3)]
    assert [stages[0] for stages in found] == [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]
    assert [n for n, _ in found[0]] == [81, 27, 9, 3, 1]
    assert sum(work for _, work in found[0]) == 81
    assert found[-1] == [(5, 81)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Stage(0, 1), "trials of a stage: 0"),
        (lambda: Stage(1, 0), "iterations of a stage: 0"),
        (lambda: Experiment("x", ()), "0 stages"),
        (lambda: successive_halving(8, 1, 8, 1), "eta: 1"),
        (lambda: successive_halving(8, 9, 8, 2), "least, most: 9, 8"),
        (lambda: by_rungs(8, (4, 2), 2), "iterations of a stage: -2"),
    ],
)
def test_what_are_no_stages_is_refused(make: object, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        make()  # type: ignore[operator]
