"""A study's copy in a storage of Optuna, which Optuna and its dashboard read while trials run."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.support.site import SCRIPTS, Site, always, running
from tests.support.waiting import LONG_S


@pytest.fixture
def site() -> Iterator[Site]:
    with running(always("n1", "n2")) as own:
        yield own


def submit(site: Site, storage: str) -> Path:
    """Submit a study of four trials, which train until a file `fast` is there. Returns where."""
    notes = site.root / "notes"
    notes.mkdir()
    study = {
        "name": "copied",
        "trainer": {
            "command": ["python", "score.py", str(notes), "{trial}", "{x}", "1"],
            "nodes": {"max": 1},
            "checkpoint": {"every_s": 0.5},
        },
        "space": {"x": {"float": [0.0, 1.0]}},
        "metric": "score",
        "direction": "maximize",
        "trials": 4,
        "budget": 2000,
        "sampler": "random",
        "storage": storage,
    }
    body = {"spec": json.dumps(study), "name": "copied", "base": str(SCRIPTS)}
    site.client.call("POST", "studies", body=body)
    return notes


def states(url: str) -> list[str]:
    return [t.state.name for t in optuna.load_study(study_name="copied", storage=url).trials]


def in_dashboard(url: str) -> list[dict[str, Any]]:
    """The trials that optuna-dashboard shows of the first study in a storage."""
    dashboard = pytest.importorskip("optuna_dashboard")
    app = dashboard.wsgi(url)

    def get(path: str) -> Any:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "wsgi.input": io.BytesIO()}
        environ |= {"SERVER_NAME": "here", "SERVER_PORT": "80", "wsgi.url_scheme": "http"}
        return json.loads(b"".join(app(environ, lambda *_: None)))

    study = get("/api/studies")["study_summaries"][0]["study_id"]
    found: list[dict[str, Any]] = get(f"/api/studies/{study}")["trials"]
    return found


def test_optuna_reads_a_study_while_its_trials_run_and_when_it_has_ended(site: Site) -> None:
    url = f"sqlite:///{site.root / 'o.db'}"
    notes = submit(site, url)

    def storage() -> dict[str, Any]:
        found: dict[str, Any] = site.get("studies/copied")["storage"]
        return found

    site.until(lambda: storage()["name"] == "copied", LONG_S, "it is written")
    site.until(lambda: "RUNNING" in states(url), LONG_S, "Optuna sees a trial that runs")
    assert "Running" in {t["state"] for t in in_dashboard(url)}
    (notes / "fast").touch()
    site.until(lambda: site.get("studies/copied")["ended_at"], 3 * LONG_S, "the study has ended")
    site.until(lambda: states(url) == ["COMPLETE"] * 4, LONG_S, "and Optuna knows all its results")
    found, study = site.get("studies/copied"), optuna.load_study(study_name="copied", storage=url)
    assert study.best_value == found["best"]["value"]
    assert study.best_params == found["best"]["params"]
    assert [t.params for t in study.trials] == [t["params"] for t in found["table"]]
