"""What is left of a study that runs, and what its deadline needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bftrainer.cli.shared.study_forecast import forecast
from bftrainer.search.parse import parse
from bftrainer.search.plan.ahead import Progress, ahead, left
from bftrainer.search.plan.of_study import experiments, profile

TEXT = """\
name: digits
trainer:
  command: [python, digits.py, --lr, "{lr}"]
  nodes: {min: 1, max: 4}
  curve: [[1, 1000], [2, 1900], [4, 3400]]
space: {lr: {float: [0.001, 0.5], log: true}}
metric: accuracy
trials: 8
budget: 40000
stopping: {halving: {least: 10000, eta: 2}}
deadline: 1h
"""
STUDY = parse(TEXT, "study.yaml", Path("/"))


def stages(*trials: Progress) -> list[tuple[int, float]]:
    """Trials and samples of what is left."""
    found = left(STUDY, trials)
    return [(s.trials, s.iterations) for s in found.stages] if found else []


def test_before_it_begins_all_of_its_stages_are_left() -> None:
    assert stages() == [(8, 10_000), (4, 10_000), (2, 20_000)]
    assert stages() == [(s.trials, s.iterations) for s in experiments(STUDY)[0].stages]


def test_what_trials_have_done_is_not_left() -> None:
    ended = [Progress(n, 1, 10_000, True) for n in range(7)]
    assert stages(*ended, Progress(7, 0, 6_000, True)) == [(1, 4_000), (4, 10_000), (2, 20_000)]
    assert stages(*ended, Progress(7, 0, 6_000, False, failed=True)) == [(4, 10_000), (2, 20_000)]
    on = [Progress(n, 1, 15_000, True) for n in range(4)]
    rest = [Progress(n, 1, 10_000, False) for n in range(4, 8)]
    assert stages(*on, *rest) == [(4, 5_000), (2, 20_000)]
    done = [Progress(n, 3, 40_000, False) for n in range(2)]
    half = [Progress(n, 2, 20_000, False) for n in range(2, 4)]
    assert left(STUDY, [*done, *half, *rest]) is None


def test_hyperband_has_an_experiment_for_each_bracket() -> None:
    own = parse(TEXT.replace("halving", "hyperband"), "study.yaml", Path("/"))
    found = experiments(own, iteration_samples=100)
    assert len(found) == 3 and sum(e.stages[0].trials for e in found) == 8
    assert [e.stages[0].iterations for e in found] == [100, 200, 400]


def test_the_trainer_says_how_fast_a_trial_is_and_what_it_costs_to_start() -> None:
    text = TEXT.replace("space:", "  rescale: {up: {stall_s: 2, init_s: 5}, down: {stall_s: 1}}\nspace:", 1)
    found = profile(parse(text, "study.yaml", Path("/")))
    assert (found.least, found.most, found.start.mean) == (1, 4, 7.0)
    assert found.curve == ((1, 1000), (2, 1900), (4, 3400))


def test_the_time_is_that_on_the_nodes_of_now() -> None:
    found = ahead(STUDY, [], 4, 3600.0)
    assert found is not None
    assert found.seconds == pytest.approx(2 * 10 + 10 + 20 / 1.9)
    assert found.nodes is not None and min(found.nodes) >= 1
    assert ahead(STUDY, [], 0, None) is not None and ahead(STUDY, [], 0, None).seconds is None  # type: ignore[union-attr]
    hopeless = ahead(STUDY, [], 1, 5.0)
    assert hopeless is not None and hopeless.nodes is None


def view(deadline_s: float | None, nodes: int) -> dict[str, Any]:
    """A study as the daemon tells of it, with one trial that runs."""
    row = {"number": 0, "results": [], "samples": 5_000, "status": "running"}
    until = None if deadline_s is None else time.time() + deadline_s
    return {
        "name": "digits",
        "text": TEXT,
        "ended_at": None,
        "deadline_at": until,
        "nodes": nodes,
        "table": [row],
    }


@pytest.mark.parametrize(
    ("deadline_s", "nodes", "said"),
    [
        (None, 4, "forecast: 14 runs left, done in 00:39 with 4 nodes as now"),
        (600, 4, "with 4 nodes as now: on time"),
        (35, 4, "too late; on time with "),
        (5, 4, "too late, and so with any number of nodes"),
        (600, 0, "no nodes now: too late; on time with "),
    ],
)
def test_a_study_says_how_it_goes_on(deadline_s: float | None, nodes: int, said: str) -> None:
    assert said in forecast(view(deadline_s, nodes))


def test_no_forecast_is_made_up() -> None:
    assert forecast({**view(600, 4), "ended_at": 1.0}) == ""
    plain = view(600, 4)
    plain["text"] = TEXT.replace("  curve: [[1, 1000], [2, 1900], [4, 3400]]\n", "")
    assert forecast(plain) == "no forecast: the study's trainer has no curve"
    assert forecast({**plain, "text": "name: [1"}).startswith("no forecast: digits:")
