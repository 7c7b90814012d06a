"""What a sampler looks at for one trial is bounded, however many trials and parameters there are."""

from __future__ import annotations

import pytest

from bftrainer.search import trial as trials
from bftrainer.search.optuna.sampling import Sampling
from bftrainer.search.trial import RungResult, Trial
from tests.support.studies import Run, spec_of


def trial(number: int, value: float) -> Trial:
    """A trial that has ended."""
    return Trial(
        number=number,
        params=(("lr", 0.001 + number / 1000),),
        samples=800,
        value=value,
        results=(RungResult(rung=0, samples=800, value=value),),
        course=((800, value),),
    )


def known(own: Sampling) -> list[int]:
    """The numbers of the trials that the sampler learns from."""
    return [t.user_attrs["number"] for t in own._study.get_trials(deepcopy=False)]


def test_of_many_trials_the_best_and_the_latest_are_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST_LEARNT", 8)
    spec = spec_of(trials=900)
    own = Sampling(spec, [trial(n, abs(n - 300) / 1000) for n in range(800)])
    assert known(own) == [299, 300, *range(794, 800)]
    for number in (800, 801, 802):
        own.tell(trial(number, 1.0))
    assert known(own) == [299, 300, *range(797, 803)]
    assert own.ask(803)


def test_a_trial_that_was_asked_for_before_it_began_anew_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "MOST_LEARNT", 4)
    own = Sampling(spec_of(trials=900))
    for number in range(12):
        own.ask(number)
    for number in range(12):
        own.tell(trial(number, float(number)))
    assert 11 in known(own) and len(known(own)) <= 5


def test_a_study_with_few_trials_learns_from_each() -> None:
    run = Run(spec_of(trials=12, parallelism=1))
    while run.study.ended_at is None:
        run.finish()
    assert len(run.study.trials) == 12


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_all_trials_share_the_description_of_the_space(sampler: str) -> None:
    own = Sampling(spec_of(trials=900, sampler=sampler))
    for number in range(6):
        own.ask(number)
    trials = own._study.get_trials(deepcopy=False)
    assert len(trials) == 6 and len({id(t.distributions["lr"]) for t in trials}) == 1


def test_a_sampler_that_learns_nothing_keeps_nothing() -> None:
    own = Sampling(spec_of(trials=900, sampler="random"))
    assert len({own.ask(number) for number in range(20)}) == 20
    assert len(own._study.get_trials(deepcopy=False)) == 1
