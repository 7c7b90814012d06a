"""What the commands on studies say and refuse, without a daemon."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bftrainer.cli import app, study_command
from bftrainer.cli.studies import export, mirror, show
from bftrainer.cli.studies.tables import head
from bftrainer.cli.studies.words import study_line
from bftrainer.daemon.answers.views.studies import Now, study_view, trial_view
from bftrainer.errors import BftrainerError
from bftrainer.messages.files.studies import STORAGE_URL
from bftrainer.model.trainer import TrainerStatus
from bftrainer.search import events
from tests.support.studies import TEXT, Run, spec_of


class Answers:
    """A daemon that says one thing after the other, and the last for ever."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self._answers = answers

    def call(self, *_args: object) -> dict[str, Any]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    study = call


def ended(reported: bool = True) -> dict[str, Any]:
    """A study that its deadline has ended before a rung, as the API tells of it."""

    def score(number: int, samples: int) -> float:
        return float(number) if reported else float("nan")

    run = Run(spec_of(parallelism=2, sampler="random", budget=5000), score)
    if reported:
        run.report(0, 2228)
    run.tell(events.Over(reason="its deadline has come"))
    table = [trial_view(run.study, trial) for trial in run.study.trials.values()]
    own = {"storage": None, "table": table, "checkpoint_dir": "/c/s.0.1"}  # the last one is the trainer's
    return {**study_view(run.study, {}, Now()), **own}


def say(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], *words: str) -> Result:
    """What a command says to a daemon that always answers alike."""
    client = SimpleNamespace(call=lambda *args, **more: answer, study=lambda *args, **more: answer)
    for module in (study_command, export, mirror, show):
        monkeypatch.setattr(module, "connect", lambda config, state_dir: client)
    return CliRunner().invoke(app, ["study", *words])


def test_the_best_of_a_study_that_ended_before_a_rung_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = say(monkeypatch, ended(), "best", "s").output.splitlines()
    assert said[0] == "loss 0 in trial 0 (not trained to a rung: after 2,228 of 5,000 samples)"
    assert said[2].startswith("trainer 1 (s.0.1): python t.py --lr ")
    found = json.loads(say(monkeypatch, ended(), "best", "s", "--json").output)
    assert (found["number"], found["samples"], found["short_of"]) == (0, 2228, 5000)
    assert (found["trainer"], found["command"][:3]) == ("s.0.1", ["python", "t.py", "--lr"])
    assert found["checkpoints"] == "/c/s.0.1"
    said = say(monkeypatch, ended(), "show", "s").output.splitlines()
    assert "(not trained to a rung: after 2,228 of 5,000 samples)" in said[0]
    none = say(monkeypatch, ended(reported=False), "best", "s")
    assert "no trial of s has reported 'loss'. See how its trials do: bftrainer study show 1" in str(
        none.exception
    )


def test_a_mirror_refuses_what_is_no_url_and_does_not_wait_for_a_folder_once_the_study_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = say(monkeypatch, ended(), "mirror", "s", "--url", "foo")
    assert isinstance(found.exception, BftrainerError)
    why = STORAGE_URL.say(given="foo", why=" is no URL of a storage")
    assert str(found.exception) == f"--url: {why}"
    url = f"sqlite:///{tmp_path}/gone/o.db"
    over = {**ended(), "text": yaml.safe_dump({**TEXT, "budget": 5000}), "base": "/"}
    told = say(monkeypatch, over, "mirror", "s", "--url", url)
    assert isinstance(told.exception, BftrainerError)
    assert str(told.exception).startswith(f"{url}: there is no folder {tmp_path}/gone. Make it")
    (tmp_path / "gone").mkdir()
    assert f"writing {url} as s" in say(monkeypatch, over, "mirror", "s", "--url", url).output


def test_the_daemons_helper_and_a_study_that_goes_on_wait_for_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    over = {**ended(), "text": yaml.safe_dump({**TEXT, "budget": 5000}), "base": "/"}
    for answer, patient in ((over, True), ({**over, "ended_at": None}, False)):
        folder = tmp_path / f"{patient}"
        client, told = Answers([answer, over]), list[dict[str, Any]]()
        monkeypatch.setattr(mirror.time, "sleep", lambda _s, new=folder: new.mkdir(exist_ok=True))
        mirror.follow(client, "s", 0.2, told.append, f"sqlite:///{folder}/o.db", patient=patient)  # type: ignore[arg-type]
        assert ["there is no folder" in row["error"] for row in told] == [True, False]


def test_a_study_that_has_ended_is_watched_with_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = say(monkeypatch, ended(), "show", "s", "--watch").output.splitlines()
    assert said[0].startswith("s (1): ended; 8 trials")
    assert len([line for line in said if line == said[0]]) == 1
    assert said[1:] == say(monkeypatch, ended(), "show", "s").output.splitlines()[1:]


def test_a_study_that_has_ended_says_so_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "the study s has ended (ended) already; its results and checkpoints stay"
    assert say(monkeypatch, {**ended(), "note": note}, "cancel", "s").output == f"{note}\n"
    assert say(monkeypatch, ended(), "cancel", "s").output.startswith("cancel: s (1): ended; 8 trials")


def test_a_url_without_optuna_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = say(monkeypatch, ended(), "export", "s", "--url", "sqlite:///s.db")
    assert found.exit_code == 2
    assert "--url: only with --to optuna" in found.output


def test_one_trial_is_no_trials() -> None:
    run = Run(spec_of(trials=1))
    assert study_line(study_view(run.study, {}, Now())) == "s (1): running; 1 trial: 1 running"
    run = Run(spec_of(trials=2, parallelism=1, retries=0, give_up_after=1))
    run.end(0, TrainerStatus.FAILED, says=False)
    assert run.study.reason.startswith("1 trial ended without a report of 'loss'")


def test_an_error_of_a_storage_names_it_once_and_how_long_it_lasts() -> None:
    own = {"url": "sqlite:////x/o.db", "name": "", "at": None, "since": time.time() - 10}
    study = {
        **ended(),
        "nodes": 0,
        "storage": {**own, "error": f"{own['url']}: there is no folder /x; make it"},
    }
    assert head(study)[2] == (
        "storage sqlite:////x/o.db: there is no folder /x; make it (not written for 10 s; it is tried again)"
    )


def test_a_study_whose_users_trainers_are_as_many_as_may_be_says_why_its_trials_wait() -> None:
    run = Run(spec_of(trials=6, parallelism=3, sampler="random"))
    view = {**study_view(run.study, {}, Now()), "storage": None, "table": []}
    assert not any("max_trainers_per_user" in line for line in head({**view, "allowed": 4}))
    said = "no more than 2 of its trials have a trainer beside the user's others"
    assert any(line.startswith(said) for line in head({**view, "allowed": 2}))
