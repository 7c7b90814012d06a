"""Studies on a real daemon with real workers: to the end, through crashes of trials and of the daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api.client import DaemonError
from bftrainer.search import Study
from tests.support.site import SCRIPTS, Site, always, running
from tests.support.studies import let_go, submit_scored
from tests.support.waiting import LONG_S

HALVING = {"halving": {"least": 200, "eta": 2}}


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    """One for all tests: what its warm processes have imported serves them all."""
    with running(always("n1", "n2")) as site:
        yield site


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    yield shared
    for study in shared.get("studies"):
        if not study["ended_at"]:
            shared.client.call("POST", f"studies/{study['id']}/cancel")
    shared.until(lambda: not shared.workers(), LONG_S, "no worker is left")


def until_ended(site: Site, name: str) -> dict[str, Any]:
    site.until(lambda: site.get(f"studies/{name}")["ended_at"], 3 * LONG_S, f"{name} has ended")
    found: dict[str, Any] = site.get(f"studies/{name}")
    return found


def audit(notes: Path, study: dict[str, Any]) -> None:
    """Assert that every step of a trial up to its rung had the same samples, however often it was taken, and
    on however many nodes."""
    steps: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for path in notes.glob("*.jsonl"):
        number = int(path.name.split("-")[0])
        for line in path.read_text().splitlines():
            note = json.loads(line)
            steps[number][note["step"]] |= set(note["indices"])
    for trial in study["table"]:
        if trial["results"]:
            own = steps[trial["number"]]
            assert sorted(own) == list(range(trial["results"][-1][0] // 20))
            assert all(len(samples) == 20 for samples in own.values()), own


def once_more(site: Site, study: str, number: int) -> dict[str, Any]:
    """Run a trial again, as a user would. Returns its trainer when it has ended."""
    program = [sys.executable, "-m", "bftrainer"]
    where = ["--state-dir", str(site.state)]
    show = [*program, "study", "show", study, "--trial", str(number), "--spec", *where]
    spec = site.root / "again.yaml"
    spec.write_bytes(subprocess.run(show, env=site.environ, check=True, capture_output=True).stdout)
    subprocess.run([*program, "submit", str(spec), *where], env=site.environ, check=True)
    return site.until_ended(f"{study}.{number}.again")


def test_successive_halving_ends_with_the_best_trial_and_each_goes_on_where_it_paused(site: Site) -> None:
    trainer = {"curve": [[1, 100], [2, 190]]}
    notes = submit_scored(site, "halves", stopping=HALVING, deadline="1d", trainer=trainer, hold=(20, 220))

    def told() -> list[str]:
        rows = site.get("events", limit=1000)
        return [row["data"]["reason"] for row in rows if row["kind"] == "StudyForecast"]

    site.until(lambda: any("as now: on time" in reason for reason in told()), LONG_S, "it says when it ends")
    assert told()[0].startswith("halves: it began: 7 runs left")
    let_go(notes, 20)
    site.until(
        lambda: any("halves: a stage has ended: " in reason for reason in told()),
        LONG_S,
        "it is planned again",
    )
    let_go(notes, 220)
    study = until_ended(site, "halves")
    assert not any("too late" in reason for reason in told()), "the deadline is a day away"
    assert study["status"] == "completed"
    assert Counter(t["status"] for t in study["table"]) == {"completed": 1, "stopped": 3}
    assert Counter(len(t["results"]) for t in study["table"]) == {1: 2, 2: 1, 3: 1}
    best = max(study["table"], key=lambda t: -((t["params"]["x"] - 0.3) ** 2))
    assert study["best"]["number"] == best["number"]
    assert [samples for samples, _ in best["results"]] == [200, 400, 800]
    assert once_more(site, "halves", best["number"])["metrics"]["score"] == best["results"][-1][1]
    audit(notes, study)  # its samples were the same again, in the same order


def test_a_trial_that_crashes_is_tried_again_and_one_that_is_broken_fails(site: Site) -> None:
    notes = submit_scored(site, "crashes", trials=2, budget=200, retries=1, parallelism=1, delay_s=0.2)
    (notes / "broken-1").touch()
    (notes / "fast").touch()
    study = until_ended(site, "crashes")
    first, second = study["table"]
    assert (first["status"], second["status"]) == ("completed", "failed")
    assert second["failures"] == 2
    assert "exit code 1" in second["reason"]
    assert study["best"]["number"] == 0


def test_a_study_that_ends_before_a_rung_keeps_its_best_last_report(site: Site) -> None:
    keys = {"metric": "loss", "direction": "minimize"}  # it reports that one with each step
    submit_scored(site, "early", trials=2, budget=4000, delay_s=0.5, **keys)

    def told() -> bool:
        return any(t["value"] is not None and t["samples"] for t in site.get("studies/early")["table"])

    site.until(told, LONG_S, "a trial has reported")
    site.client.call("POST", "studies/early/cancel")
    study = until_ended(site, "early")
    assert not any(t["results"] for t in study["table"])
    best = study["best"]
    assert best["short_of"] == 4000 and 0 < best["samples"] < 4000
    assert best["value"] == min(t["value"] for t in study["table"] if t["value"] is not None)
    assert "has ended (cancelled) already" in site.client.call("POST", "studies/early/cancel")["note"]


def test_a_paused_study_gives_its_nodes_back_and_goes_on_from_its_checkpoints(site: Site) -> None:
    notes = submit_scored(site, "pauses", trials=2, budget=600, delay_s=1.0)
    site.until(lambda: any(t["samples"] for t in site.get("studies/pauses")["table"]), LONG_S, "progress")
    assert site.client.call("POST", "studies/pauses/pause")["status"] == "paused"
    site.until(
        lambda: {t["status"] for t in site.get("studies/pauses")["table"]} == {"waiting"},
        LONG_S,
        "all trials wait",
    )
    assert not site.workers()
    found = site.get("studies/pauses")
    assert (found["status"], found["ended_at"]) == ("paused", None)
    (notes / "fast").touch()
    site.client.call("POST", "studies/pauses/resume")
    study = until_ended(site, "pauses")
    assert [t["status"] for t in study["table"]] == ["completed", "completed"]
    assert max(t["run"] for t in study["table"]) == 2
    audit(notes, study)


def test_a_killed_daemon_loses_no_result_and_repeats_none(site: Site) -> None:
    notes = submit_scored(site, "killed", trials=6, stopping=HALVING, delay_s=0.05)
    for reached in (1, 4, 7):
        site.until(
            lambda least=reached: (
                sum(len(t["results"]) for t in site.get("studies/killed")["table"]) >= least
            ),
            LONG_S,
            f"{reached} results",
        )
        before = {t["number"]: (t["params"], t["results"]) for t in site.get("studies/killed")["table"]}
        site.kill_daemon()
        site.start()
        after = {t["number"]: (t["params"], t["results"]) for t in site.get("studies/killed")["table"]}
        for number, (params, results) in before.items():
            assert after[number][0] == params
            assert after[number][1][: len(results)] == results, "a result is lost"
    (notes / "fast").touch()
    study = until_ended(site, "killed")
    assert Counter(len(t["results"]) for t in study["table"]) == {1: 3, 2: 2, 3: 1}
    names = [t["name"] for t in site.get("trainers", limit=1000) if t["name"].startswith("killed.")]
    assert len(names) == len(set(names)) == 6 + 3 + 1, "no trainer was submitted twice"
    audit(notes, study)


def test_another_priority_holds_for_a_study_and_its_trainers_though_the_daemon_is_killed(site: Site) -> None:
    notes = submit_scored(site, "first", trials=3, parallelism=2, budget=400, hold=(200,))
    site.until(lambda: trainers_of(site, "first"), LONG_S, "it has trainers")
    assert site.client.call("POST", "studies/first/priority", body={"priority": 5.0})["priority"] == 5.0
    site.until(lambda: set(trainers_of(site, "first").values()) == {5.0}, LONG_S, "its trainers have it")
    chosen = next(iter(trainers_of(site, "first")))
    site.client.call("POST", f"trainers/{chosen}/priority", body={"priority": 7.5})
    site.until(lambda: trainers_of(site, "first")[chosen] == 7.5, LONG_S, "one trainer has another")
    site.kill_daemon()
    site.start()
    assert next(s for s in site.get("studies") if s["name"] == "first")["priority"] == 5.0
    site.until(
        lambda: set(trainers_of(site, "first").values()) <= {5.0, 7.5}, LONG_S, "they have kept theirs"
    )
    let_go(notes, 200)
    until_ended(site, "first")
    with pytest.raises(DaemonError, match="ended"):
        site.client.call("POST", "studies/first/priority", body={"priority": 1.0})
    with pytest.raises(DaemonError, match="above 0"):
        site.client.call("POST", f"trainers/{chosen}/priority", body={"priority": -1})


def trainers_of(site: Site, study: str) -> dict[str, float]:
    """The unfinished trainers of a study, with their priorities."""
    every = site.get("trainers", limit=0)
    return {t["name"]: t["priority"] for t in every if t["name"].startswith(f"{study}.")}


def test_a_study_from_python(site: Site) -> None:
    notes = site.root / "python"
    notes.mkdir()
    study = Study(
        "python",
        trainer={"command": ["python", "score.py", str(notes), "{trial}", "{x}", "0"], "nodes": {"max": 2}},
        space={"x": {"float": [0.0, 1.0]}},
        metric="score",
        direction="maximize",
        trials=3,
        budget=200,
        base=SCRIPTS,
        state_dir=str(site.state),
    )
    study.submit()
    assert study.wait(LONG_S)["status"] == "completed"
    assert study.best is not None
    assert study.best["params"] == study.to_optuna().best_params
    assert Study("python", state_dir=str(site.state)).best == study.best


def test_a_cancelled_study_leaves_no_trainer(site: Site) -> None:
    submit_scored(site, "cancelled", delay_s=1.0)
    site.until(site.workers, LONG_S, "a trial trains")
    assert site.client.call("POST", "studies/cancelled/cancel")["status"] == "cancelled"
    study = until_ended(site, "cancelled")
    assert study["status"] == "cancelled"
    assert {t["status"] for t in study["table"]} == {"cancelled"}
    site.until(lambda: not site.workers(), LONG_S, "no worker is left")


@pytest.mark.nightly  # the same as above, as a new user runs it
def test_the_demo_finds_good_parameters() -> None:
    study = Path(__file__).parents[2] / "trainers" / "studies" / "digits.yaml"
    command = [sys.executable, "-m", "bftrainer", "study", "demo", str(study), "--json", "--seconds", "400"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    found = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (found["status"], found["steps_lost"], found["strays"]) == ("completed", 0, [])
    assert found["best"]["value"] >= 0.95
    assert {f["because"] for f in found["forecasts"]} >= {"it began", "a stage has ended"}
