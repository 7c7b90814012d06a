"""What the commands on studies say and refuse, without a daemon."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app, study_command, study_export, study_mirror, study_show
from bftrainer.daemon.study_views import Now, study_view, trial_view
from bftrainer.search import events
from tests.support.studies import Run, spec_of


def ended(reported: bool = True) -> dict[str, Any]:
    """A study that its deadline has ended before a rung, as the API tells of it."""

    def score(number: int, samples: int) -> float:
        return float(number) if reported else float("nan")

    run = Run(spec_of(parallelism=2, sampler="random", budget=5000), score)
    if reported:
        run.report(0, 2228)
    run.tell(events.Over(reason="its deadline has come"))
    table = [trial_view(run.study, trial) for trial in run.study.trials.values()]
    return {**study_view(run.study, {}, Now()), "storage": None, "table": table}


def say(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], *words: str) -> Result:
    """What a command says to a daemon that always answers alike."""
    client = SimpleNamespace(call=lambda *args, **more: answer)
    for module in (study_command, study_export, study_mirror, study_show):
        monkeypatch.setattr(module, "connect", lambda config, state_dir: client)
    return CliRunner().invoke(app, ["study", *words])


def test_the_best_of_a_study_that_ended_before_a_rung_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = say(monkeypatch, ended(), "best", "s").output.splitlines()
    assert said[0] == "loss 0 in trial 0 (not trained to a rung: after 2,228 of 5,000 samples)"
    assert said[2].startswith("trainer s.0.1: python t.py --lr ")
    found = json.loads(say(monkeypatch, ended(), "best", "s", "--json").output)
    assert (found["number"], found["samples"], found["short_of"]) == (0, 2228, 5000)
    said = say(monkeypatch, ended(), "show", "s").output.splitlines()
    assert "(not trained to a rung: after 2,228 of 5,000 samples)" in said[0]
    none = say(monkeypatch, ended(reported=False), "best", "s")
    assert "no trial of s has reported 'loss'; see why: bftrainer study show s" in str(none.exception)
