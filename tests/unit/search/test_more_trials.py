"""Trials and known points that are added to a study, and what one study learns from an older one."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
import yaml

from bftrainer.errors import BftrainerError
from bftrainer.search import events
from bftrainer.search.cost import MOST, addition
from bftrainer.search.decide import OrderRefusedError, step
from bftrainer.search.files import space
from bftrainer.search.files.space import PointReader
from bftrainer.search.optuna.sampling import Sampling
from bftrainer.search.rows import loaded, stored_points, stored_study, stored_trial
from bftrainer.search.trial import Study, StudyFile, StudyStatus
from bftrainer.spec.located_yaml import SpecError
from tests.support.studies import TEXT, Run, spec_of

HALVING = {"halving": {"least": 100, "eta": 2}}
SPACE = {
    "lr": {"float": [0.001, 1.0], "log": True},
    "opt": {"choice": ["sgd", "adam", True]},
    "layers": {"int": [1, 4], "when": {"opt": "sgd"}},
}
COMMAND = {"command": ["python", "t.py", "{params}"], "nodes": {"max": 4}}


def again(study: Study) -> Study:
    """The study as it is read back from the store."""
    text = yaml.safe_dump({**TEXT, "stopping": HALVING, "parallelism": 4}, sort_keys=False)
    kept = stored_study(replace(study, source=StudyFile(text=text, file="", base="/")))
    rows = [*stored_points(study, len(study.spec.points)), *map(stored_trial, study.trials.values())]
    return loaded(kept, sorted(rows, key=attrgetter("number")))


def test_trials_that_are_added_compete_with_each_other_and_the_study_waits_for_them() -> None:
    run = Run(spec_of(parallelism=4, stopping=HALVING))
    for number in range(8):
        run.end(number)
    assert run.study.trials[7].status.final and not run.study.trials[0].status.final
    run.tell(events.Add(trials=4))
    assert run.study.spec.trials == 12 and [b.first for b in run.study.brackets] == [0, 8]
    own = again(run.study)
    assert (own.spec.trials, own.spec.added, own.brackets) == (12, (4,), run.study.brackets)
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED and len(run.study.trials) == 12
    assert [n for n, samples in run.started if samples == 800] == [0, 8]
    run.tell(events.Add(trials=4))
    assert run.study.spec.trials == 12, "it has ended"


@pytest.mark.parametrize("kind", ["asha", "hyperband", "none"])
def test_any_study_takes_more_trials(kind: str) -> None:
    stopping = "none" if kind == "none" else {kind: {"least": 100, "eta": 2}}
    run = Run(spec_of(parallelism=3, stopping=stopping))
    run.end(0)
    run.tell(events.Add(trials=5))
    run.tell(events.Add(trials=1))
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED and sorted(run.study.trials) == list(range(14))


def test_known_points_are_tried_first_and_the_sampler_chooses_the_rest() -> None:
    points = [{"lr": 0.125, "opt": "sgd", "layers": 3}, {"opt": True}]
    run = Run(spec_of(parallelism=1, space=SPACE, trainer=COMMAND, points=points))
    assert dict(run.study.trials[0].params) == points[0]
    run.end(0)
    assert dict(run.study.trials[1].params)["opt"] is True and "lr" in dict(run.study.trials[1].params)
    run.tell(addition(run.study, 0, [{"lr": 1}], MOST))
    assert run.study.points[run.study.tried :] == ((("lr", 1.0),),)
    run.end(1)
    assert dict(run.study.trials[2].params)["lr"] == 1.0
    run.finish()
    assert len(run.study.trials) == 8 and run.study.untried == 0


def test_points_outlast_a_restart_between_the_question_and_its_answer() -> None:
    run = Run(spec_of(parallelism=1, stopping=HALVING))
    run.tell(events.Add(points=((("lr", 0.5),),)))
    own = again(run.study)
    assert own.points == ((("lr", 0.5),),) and own.untried == 1 and not own.asked
    run.end(0)
    assert again(run.study).untried == 0
    run.tell(events.Add(points=tuple((("lr", 0.01 * n),) for n in range(1, 4))))
    assert again(run.study).points == run.study.points and again(run.study).untried == 3


def test_a_changed_priority_and_what_was_used_outlast_a_restart() -> None:
    run = Run(spec_of(parallelism=1, stopping=HALVING))
    run.tell(events.Prioritise(to=5.0))
    run.tell(events.TrialSlots(trials=1, node_s=7200.0))
    own = again(run.study)
    assert (own.spec.trainer.priority, own.used_node_s) == (5.0, 7200.0)


@pytest.mark.parametrize(
    ("trials", "points", "said"),
    [
        (0, [{"rate": 0.1}], "unknown parameter 'rate'. Give one of lr, opt, layers"),
        (0, [{"lr": 2.0}], "lr: 2.0 cannot be used. Give a number from 0.001 to 1"),
        (0, [{"lr": True}], "lr: True cannot be used. Give a number"),
        (0, [{"lr": float("nan")}], "lr: nan cannot be used. Give a number"),
        (0, [{"layers": 1.5}], "layers: 1.5 cannot be used. Give a whole number from 1 to 4"),
        (0, [{"opt": 1}], "opt: 1 cannot be used. Give one of its choices, such as 'sgd', 'adam', True"),
        (0, [{"lr": 0.1}] * 8, "8 points, and there is room for 7. Give fewer points"),
        (0, [{"lr": 10**400}], "lr: 1000"),
        (0, [{"opt": 10**400}], "opt: 1000"),
        (0, [{"opt": [1]}], "opt: list cannot be used. Give a number, a text, true or false"),
        (0, [{"lr": 2.0}, 5], "lr: 2.0 cannot be used. Give a number"),  # the first wrong one ends it
        (0, [5], "'points' is no list of objects"),
        (2_000, [{"lr": 0.1}] * 1_001, "1,001 points, and there is room for 1,000"),
        (100_000, [], "100,008 trials in all are above 100,000, the most here (max_trials)"),
    ],
)
def test_what_cannot_be_added_is_told(trials: int, points: list[dict[str, Any]], said: str) -> None:
    study = Run(spec_of(parallelism=1, space=SPACE, trainer=COMMAND)).study
    with pytest.raises(BftrainerError) as caught:
        addition(study, trials, points, MOST)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"points": [{"lr": 5.0}]}, "lr: 5.0 cannot be used. Give a number from 0.001 to 1"),
        ({"points": [{"lr": 0.1 + i / 100} for i in range(9)]}, "9 points for 8 trials. Raise trials"),
        (
            {"warm_start": "old", "sampler": "random"},
            "random does not learn from an earlier study. Take sampler: tpe",
        ),
        (
            {"points": [{"lr": 0.5}], "sampler": "grid", "space": {"lr": {"float": [0.1, 1.0], "step": 0.1}}},
            "a grid has all of its points already",
        ),
    ],
)
def test_what_a_file_cannot_ask_for_is_told(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(**change)
    assert said in str(caught.value)


def test_a_study_learns_from_an_older_one() -> None:
    """TPE of Optuna begins to learn after ten trials: so the first trial depends on the older ones."""

    def near(number: int, samples: int) -> float:
        return abs(dict(run.study.trials[number].params)["lr"] - 0.02)  # type: ignore[operator]

    run = Run(spec_of(trials=40, parallelism=1), near)
    run.finish()
    spec = spec_of(seed=5)
    known = run.study.known_to(spec)
    assert len(known) == 40 and all(t.number < 0 for t in known)
    fresh, warm = Sampling(spec), Sampling(spec, known)
    rates = [[dict(own.ask(n))["lr"] for n in range(8)] for own in (fresh, warm)]
    off = [sum(abs(float(lr) - 0.02) for lr in own) for own in rates]
    assert off[1] < off[0] / 2
    for change, said in (
        ({"metric": "error"}, "another metric"),
        ({"direction": "maximize"}, "another direction"),
        ({"space": {"lr": {"float": [2.0, 3.0]}}}, "'s' has no result with all parameters"),
    ):
        with pytest.raises(ValueError, match=said):
            run.study.known_to(spec_of(**change))


def test_choices_are_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(space, "same", lambda one, other: bool(compared.append(other)))
    reader = PointReader(spec_of(space={"opt": {"choice": list(range(256))}}, trainer=COMMAND).space)
    for value in range(256):
        assert reader.read({"opt": value}) == (("opt", value),)
    with pytest.raises(
        ValueError, match=r"opt: 0\.5 cannot be used\. Give one of its choices, such as 0, 1, 2, 3, 4"
    ):
        reader.read({"opt": 0.5})
    assert len(compared) <= 2


def test_a_choice_is_found_that_is_almost_the_number() -> None:
    own = spec_of(space={"opt": {"choice": [0.3, True, 1, "1", 10**40]}}, trainer=COMMAND).space
    reader = PointReader(own)
    given = (0.1 * 3, True, 1.0, "1", 10**40)
    assert [reader.read({"opt": value})[0][1] for value in given] == [0.3, True, 1, "1", 10**40]


def test_what_was_counted_before_others_added_is_counted_again() -> None:
    study = Run(spec_of(parallelism=1)).study
    most = replace(MOST, trials=10)
    more, points = addition(study, 2, [], most), addition(study, 0, [{"lr": 0.1}] * 7, most)
    grown, _ = step(study, more, 1.0)
    assert grown.spec.trials == 10
    with pytest.raises(OrderRefusedError, match="12 trials in all are above 10"):
        step(grown, more, 1.0)
    full, _ = step(grown, points, 1.0)
    with pytest.raises(OrderRefusedError, match="7 points, and there is room for 2"):
        step(full, points, 1.0)
