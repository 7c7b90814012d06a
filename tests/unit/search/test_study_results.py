"""What users take away from a study: tables, a page with pictures, and a study of Optuna."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import optuna
import pytest

from bftrainer.cli.shared.studies import sparkline
from bftrainer.cli.study_export import write_csv
from bftrainer.daemon.study_views import study_view, trial_views
from bftrainer.errors import BftrainerError
from bftrainer.search.export import as_optuna, in_storage
from bftrainer.search.pictures import page
from bftrainer.search.stored import loaded, stored_study, stored_trial
from bftrainer.search.trial import Source
from tests.support.studies import TEXT, Run, spec_of

HALVING = {"halving": {"least": 100, "eta": 2}}


@pytest.fixture
def run() -> Run:
    own = Run(
        spec_of(parallelism=8, stopping=HALVING, sampler="random"), lambda n, samples: n + 100 / samples
    )
    own.finish()
    return own


def told(run: Run) -> dict[str, Any]:
    """What the API tells of a study."""
    import yaml

    text = yaml.safe_dump({**TEXT, "stopping": HALVING, "sampler": "random"}, sort_keys=False)
    view = study_view(run.study, {})
    return {**view, "text": text, "table": trial_views(run.study, {})()}


def test_the_rungs_tell_how_many_trials_have_ended_them(run: Run) -> None:
    rungs = told(run)["rungs"]
    assert [(rung["samples"], rung["ended"]) for rung in rungs] == [(100, 8), (200, 4), (400, 2), (800, 1)]
    assert rungs[1]["best"] == 0.5


def test_csv_has_a_row_for_each_trial(run: Run) -> None:
    out = io.StringIO()
    write_csv(told(run), out)
    head, first, *rest = out.getvalue().splitlines()
    assert head.startswith("number,status,rung,samples,value")
    assert head.endswith(",lr")
    assert first.startswith("0,completed,3,800,0.125,4,0,")
    assert len(rest) == 7


def test_a_study_of_optuna_has_the_results_and_can_be_written_twice(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'o.db'}"
    for _ in range(2):
        in_storage(told(run), url)
    found = optuna.load_study(study_name="s", storage=url)
    assert len(found.trials) == 8
    assert found.best_trial.user_attrs["number"] == 0
    assert found.best_params == dict(run.study.trials[0].params)
    assert found.best_trial.intermediate_values == {100: 1.0, 200: 0.5, 400: 0.25, 800: 0.125}
    assert {t.state.name for t in found.trials} == {"COMPLETE", "PRUNED"}


def test_what_is_no_storage_is_told(run: Run) -> None:
    with pytest.raises(BftrainerError, match="is it a storage of Optuna"):
        in_storage(told(run), "nowhere://")


def test_the_page_has_optunas_pictures(run: Run) -> None:
    text = page(told(run))
    assert text.count("data:image/png") >= 3
    assert "http" not in text


def test_a_study_is_read_back_from_the_store_as_it_was(run: Run) -> None:
    import yaml

    text = yaml.safe_dump(
        {**TEXT, "parallelism": 8, "stopping": HALVING, "sampler": "random"}, sort_keys=False
    )
    study = run.study
    kept = stored_study(study)
    trials = [stored_trial(t) for t in study.trials.values()]
    from dataclasses import replace

    kept = replace(kept, text=text, file="s.yaml", base="/work")
    again = loaded(kept, trials)
    assert again.trials == study.trials
    assert again.brackets == study.brackets
    assert (again.status, again.ended_at, again.source) == (
        *(study.status, study.ended_at),
        Source(text=text, file="s.yaml", base="/work"),
    )
    assert as_optuna(told(run)).best_trial.user_attrs["number"] == 0


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([(1, 0.0), (2, 0.5), (3, 1.0)]) == "▁▅█"
    assert sparkline([(1, 3.0)]) == "▁"
    assert sparkline([]) == ""
