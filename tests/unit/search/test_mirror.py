"""A study of Optuna that is kept like one of the daemon: what is written again, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from bftrainer.cli.studies.mirror import follow
from bftrainer.daemon.answers.views.studies import Now, study_view, trial_view
from bftrainer.errors import BftrainerError
from bftrainer.search.optuna.mirror import Mirror
from tests.support.studies import TEXT, Run, spec_of

KEYS: dict[str, Any] = {"stopping": {"halving": {"least": 100, "eta": 2}}, "sampler": "random"}


def told(run: Run) -> dict[str, Any]:
    """What the API tells of a study."""
    text = yaml.safe_dump({**TEXT, **KEYS}, sort_keys=False)
    rows = [trial_view(run.study, trial) for _, trial in sorted(run.study.trials.items())]
    return {**study_view(run.study, {}, Now()), "text": text, "table": rows}


@pytest.fixture
def run() -> Run:
    return Run(spec_of(parallelism=3, **KEYS), lambda n, samples: n + 100 / samples)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'o.db'}"


def test_a_trial_that_goes_on_runs_in_optuna_until_it_has_ended(run: Run, url: str) -> None:
    mirror = Mirror(url)
    assert mirror.update(told(run)) == "s"
    run.report(0, 50)
    mirror.update(told(run))
    first = optuna.load_study(study_name="s", storage=url).trials[0]
    assert (first.state.name, first.intermediate_values) == ("RUNNING", {50: 2.0})
    run.finish()
    mirror.update(told(run))
    study = optuna.load_study(study_name="s", storage=url)
    assert [t.state.name for t in study.trials] == ["COMPLETE"] + ["PRUNED"] * 7
    assert study.best_params == dict(run.study.trials[0].params)
    assert study.best_trial.intermediate_values == {50: 2.0, 100: 1.0, 200: 0.5, 400: 0.25, 800: 0.125}


def test_another_process_goes_on_with_what_is_there(run: Run, url: str) -> None:
    Mirror(url).update(told(run))
    run.finish()
    for _ in range(2):
        Mirror(url).update(told(run))
    study = optuna.load_study(study_name="s", storage=url)
    assert [t.number for t in study.trials] == [t.user_attrs["number"] for t in study.trials] == [*range(8)]
    assert study.best_value == 0.125


def test_another_study_of_that_name_is_left_alone(run: Run, url: str) -> None:
    optuna.create_study(study_name="s", storage=url).add_trial(optuna.create_trial(value=7.0))
    for _ in range(2):
        assert Mirror(url).update(told(run)) == "s-1"
    assert optuna.load_study(study_name="s", storage=url).best_value == 7.0


def test_a_storage_that_was_lost_is_written_as_a_whole_when_it_is_back(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    mirror = Mirror(f"sqlite:///{folder / 'o.db'}")
    with pytest.raises(BftrainerError, match="there is no folder"):
        mirror.update(told(run))
    folder.mkdir()
    mirror.update(told(run))
    assert len(optuna.load_study(study_name="s", storage=f"sqlite:///{folder / 'o.db'}").trials) == 3


def test_a_copy_that_somebody_has_deleted_is_written_anew(run: Run, url: str) -> None:
    mirror = Mirror(url)
    mirror.update(told(run))
    optuna.delete_study(study_name="s", storage=url)
    run.report(0, 50)
    with pytest.raises(BftrainerError):
        mirror.update(told(run))
    mirror.update(told(run))
    assert len(optuna.load_study(study_name="s", storage=url).trials) == 3


def test_what_is_no_database_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "o.db").write_text("a text" * 1000)
    with pytest.raises(BftrainerError, match="file is not a database"):
        Mirror(f"sqlite:///{tmp_path / 'o.db'}").update(told(run))


class Told:
    """A client to which a daemon tells of one study."""

    def __init__(self, study: dict[str, Any]) -> None:
        self._study = study

    def study(self, name: str) -> dict[str, Any]:
        """What the client of the API returns."""
        return self._study


def test_nobody_writes_where_another_user_says(run: Run, tmp_path: Path, url: str) -> None:
    """An admin may see others' studies, and would write a file anywhere."""
    path = tmp_path / "theirs.db"
    text = yaml.safe_dump({**TEXT, **KEYS, "storage": f"sqlite:///{path}"})
    study = told(run) | {"user": "mallory", "text": text, "base": "/", "ended_at": 1.0}
    client: Any = Told(study)
    with pytest.raises(BftrainerError, match="s is mallory's, so you need a storage of your own"):
        follow(client, "s", 0.0, lambda known: None, patient=False)
    assert not path.exists()
    follow(client, "s", 0.0, lambda known: None, url, patient=False)
    assert Path(url.removeprefix("sqlite:///")).exists() and not path.exists()
