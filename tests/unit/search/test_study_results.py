"""What users take away from a study: tables, a page with pictures, and a study of Optuna."""

from __future__ import annotations

import csv
import gc
import io
import json
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import optuna
import pytest

from bftrainer.cli.studies.export import write_csv
from bftrainer.cli.studies.tables import chosen as of_table
from bftrainer.cli.studies.tables import status_of
from bftrainer.cli.studies.words import sparkline, study_line
from bftrainer.daemon.answers.views.studies import (
    LiveTrainer,
    Now,
    TrialPart,
    TrialTexts,
    chosen,
    study_row,
    study_view,
    trial_view,
)
from bftrainer.errors import BftrainerError
from bftrainer.search import Study, events
from bftrainer.search import trial as model
from bftrainer.search.optuna.export import as_optuna, in_storage
from bftrainer.search.optuna.pictures import page
from bftrainer.search.rows import brief, loaded, stored_study, stored_trial
from bftrainer.search.trial import StudyFile, Trial, TrialStatus
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
    return told_of(run.study)


def told_of(study: model.Study) -> dict[str, Any]:
    """What the API tells of a study at one moment."""
    import yaml

    text = yaml.safe_dump({**TEXT, "stopping": HALVING, "sampler": "random"}, sort_keys=False)
    view = study_view(study, {}, Now())
    return {
        **view,
        "text": text,
        "table": [trial_view(study, trial) for _, trial in sorted(study.trials.items())],
    }


def test_the_rungs_tell_how_many_trials_have_ended_them(run: Run) -> None:
    rungs = told(run)["rungs"]
    assert [(rung["samples"], rung["ended"]) for rung in rungs] == [(100, 8), (200, 4), (400, 2), (800, 1)]
    assert rungs[1]["best"] == 0.5


def test_of_a_study_only_what_has_changed_is_made_into_text_again(run: Run) -> None:
    texts = TrialTexts()
    first = list(texts.of(run.study, {}, 1).values())
    other = run.study.put(replace(run.study.trials[3], reason="why"))
    again = list(texts.of(other, {}, 1).values())
    assert [n for n, (old, new) in enumerate(zip(first, again, strict=True)) if old is not new] == [3]
    assert json.loads(again[3])["reason"] == "why"
    live = {trainer: LiveTrainer(2, 700) for trainer in [other.trials[5].trainer] if trainer is not None}
    assert [len(json.loads(text)["course"]) for text in texts.of(other, live, 1).values()] == [1] * 8
    assert json.loads(texts.of(other, {}, 0)[0])["course"] == []


def test_of_many_trials_the_best_are_told(run: Run) -> None:
    texts = TrialTexts()
    assert [json.loads(text)["number"] for text in texts.of(run.study, {}, 1, TrialPart(3)).values()] == [
        0,
        1,
        2,
    ]
    worse = replace(run.study, spec=replace(run.study.spec, maximize=True))
    assert [t.number for t in chosen(worse, 5)] == [0, 1, 3, 2, 7], "those that came furthest come first"
    running = worse.put(replace(worse.trials[6], status=TrialStatus.RUNNING))
    assert [t.number for t in chosen(running, 2)] == [6, 0]
    assert [t.number for t in chosen(running, 8)] == list(range(8))
    assert study_view(run.study, {}, Now())["failed"] is None


def test_an_answer_has_as_many_trials_as_fit_and_the_next_one_the_others(run: Run) -> None:
    texts = TrialTexts()
    whole = texts.of(run.study, {}, 1)
    some = texts.of(run.study, {}, 1, TrialPart(bytes=3 * len(whole[0])))
    assert list(some) in ([0, 1], [0, 1, 2]) and all(some[n] == whole[n] for n in some)
    rest = texts.of(run.study, {}, 1, TrialPart(after=max(some)))
    assert {**some, **rest} == whole
    assert list(texts.of(run.study, {}, 1, TrialPart(bytes=1))) == [0], "one in any case"
    assert list(TrialTexts().of(run.study, {}, 1, TrialPart(after=7))) == []


def test_a_study_that_ends_before_a_rung_has_the_best_last_report() -> None:
    own = Run(
        spec_of(parallelism=3, stopping=HALVING, sampler="random"), lambda n, samples: n + 100 / samples
    )
    assert told(own)["best"] is None
    for number, samples in ((0, 20), (1, 40), (1, 50), (2, 80)):
        own.report(number, samples)
    own.tell(events.Over(reason="its deadline has come"))
    view = told(own)
    assert (view["ended_at"], view["status"]) == (1.0, "ended")
    wanted = {"number": 1, "value": 3.0, "samples": 50, "short_of": 100}
    assert view["best"] == {**wanted, "params": dict(own.study.trials[1].params)}
    said = "best loss 3 in trial 1 (not trained to a rung: after 50 of 100 samples)"
    assert said in study_line(view)
    assert said in page(view)
    assert [t.number for t in chosen(own.study, 1)] == [t["number"] for t in of_table(view, 1)] == [1]


def test_a_result_at_a_rung_goes_before_a_better_report_on_the_way(run: Run) -> None:
    early = run.study.trials[6].reported(20, -5.0)
    best = told_of(run.study.put(replace(early, results=())))["best"]
    assert (best["number"], best["samples"], best["short_of"]) == (0, 800, None)


def test_csv_has_a_row_for_each_trial(run: Run) -> None:
    out = io.StringIO()
    write_csv(told(run), out)
    head, first, *rest = out.getvalue().splitlines()
    assert head.startswith("number,status,rung,samples,value")
    assert head.endswith(",lr")
    assert first.startswith("0,completed,3,800,0.125,4,0,")
    assert len(rest) == 7


def test_no_cell_of_csv_begins_a_formula(run: Run) -> None:
    view = told(run)
    row = {**view["table"][0], "reason": "=cmd|' /C calc'!A0", "params": {"lr": "@x"}, "value": -0.5}
    out = io.StringIO()
    write_csv({**view, "table": [row, *({**row, "reason": f"{sign}1"} for sign in "+-@=\t")]}, out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [own["reason"][0] for own in rows] == ["'"] * 6
    assert (rows[0]["lr"], rows[0]["value"]) == ("'@x", "-0.5")


@pytest.mark.parametrize(
    "choices", [["$\\frac{", "$x_{$"], ["x" * 12_000, "b"], ["\n" * 4000, "b"], ["a", "b"]]
)
def test_the_page_bears_every_text_and_number(run: Run, choices: list[str]) -> None:
    view = told(run)
    text = json.dumps({**TEXT, "metric": "$\\frac{", "space": {"lr": {"choice": choices}}})
    values = [1e308, -1e308, 1.0, 2.0]
    table = [
        {
            **row,
            "params": {"lr": choices[row["number"] % 2]},
            "value": values[row["number"] % 4],
            "results": [[800, values[row["number"] % 4]]],
        }
        for row in view["table"]
    ]
    made = page({**view, "text": text, "metric": "$\\frac{", "best": None, "table": table})
    assert made.count("<h2>") == 5 and "<script" not in made
    assert len(made) < 4_000_000


def test_the_brackets_of_hyperband_are_named_as_rungs_count_within_them() -> None:
    own = Run(spec_of(parallelism=8, stopping={"hyperband": {"least": 200, "eta": 2}}, sampler="random"))
    own.finish()
    out = io.StringIO()
    write_csv(told(own), out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [b.first for b in own.study.brackets] == [0, 3, 5]
    assert [row["bracket"] for row in rows] == ["0", "0", "0", "1", "1", "2", "2", "2"]
    whole = [row for row in rows if row["samples"] == "800"]
    assert {(row["bracket"], row["rung"]) for row in whole} >= {("1", "1"), ("2", "0")}


def test_a_frame_of_pandas_has_a_row_for_each_trial(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    study = Study("s", state_dir="/nowhere")
    monkeypatch.setattr(study, "show", lambda: told(run))
    frame = study.frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["value"].idxmin() == 0
    assert frame.loc[0, "lr"] == dict(run.study.trials[0].params)["lr"]
    assert list(frame["status"].value_counts()) == [7, 1]
    monkeypatch.setattr(study, "show", lambda: {"table": []})
    assert study.frame().empty


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
    with pytest.raises(BftrainerError, match="Check that it is a storage of Optuna"):
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
    kept = replace(kept, text=text, file="s.yaml", base="/work")
    again = loaded(kept, trials)
    assert again.trials == study.trials
    assert again.brackets == study.brackets
    assert (again.status, again.ended_at, again.source) == (
        *(study.status, study.ended_at),
        StudyFile(text=text, file="s.yaml", base="/work"),
    )
    assert as_optuna(told(run)).best_trial.user_attrs["number"] == 0


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([(1, 0.0), (2, 0.5), (3, 1.0)]) == "▁▅█"
    assert sparkline([(1, 3.0)]) == "▁"
    assert sparkline([]) == ""


def test_a_trial_whose_trainer_waits_for_nodes_waits_with_the_samples_that_it_has() -> None:
    run = Run(spec_of(parallelism=2, sampler="random"), lambda number, samples: 1.0)
    first, second = (run.study.trials[n].trainer or 0 for n in (0, 1))
    live = {first: LiveTrainer(0, 96_336, waits=True), second: LiveTrainer(2, 700)}
    rows = [json.loads(text) for text in TrialTexts().of(run.study, live, 1).values()]
    assert [(t["status"], t["samples"], t["nodes"]) for t in rows[:2]] == [
        ("waiting", 96_336, 0),
        ("running", 700, 2),
    ]
    view = study_view(run.study, live, Now())
    assert view["counts"] == view["rungs"][0]["trials"] == {"waiting": 1, "running": 1}
    assert study_row(run.study, None, live)["counts"] == view["counts"]


def test_a_trial_whose_trainer_did_its_work_without_a_value_is_not_told_as_failed() -> None:
    run = Run(spec_of(parallelism=1, sampler="random", give_up_after="never"), lambda number, samples: nan)
    run.end(0)
    trial = run.study.trials[0]
    row = trial_view(run.study, trial)
    assert row["status"] == "failed" and status_of(row) == "no value", "programs read the status"
    assert row["samples"] == 800 and row["trainer_id"] is not None
    assert (
        study_view(run.study, {}, Now())["counts"]["no value"] == brief(run.study)["counts"]["no value"] == 1
    )
    assert status_of({**row, "failures": 2}) == "failed"


def test_what_waits_for_the_store_of_a_trial_is_nothing_to_a_collection_of_garbage() -> None:
    params = tuple((f"p{number}", number / 7) for number in range(100))
    data = stored_trial(Trial(number=1, params=params, course=((8, 0.5),))).data
    for _ in range(3):  # tuples within tuples come first
        gc.collect()
    assert not any(map(gc.is_tracked, [data["params"], *data["params"], *data["course"]]))
