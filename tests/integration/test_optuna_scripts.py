"""Scripts that were written for Optuna, unchanged: as the trials of a study, and as a trainer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import optuna
import pytest

from tests.support.site import SCRIPTS, Site, always, running
from tests.support.waiting import LONG_S

SCRIPT = "optuna_script.py"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(always("n1", "n2")) as own:
        yield own


def until_ended(site: Site, study: dict[str, Any]) -> dict[str, Any]:
    """Submit a study, and wait for its end."""
    own = {
        "trainer": {
            "command": ["python", "-m", "bftrainer.elastic.optuna", "{params}", SCRIPT],
            "launcher": "torchrun",
            "nodes": {"max": 1},
        },
        "space": {"x": {"float": [0.0, 1.0]}, "kind": {"choice": ["flat", "steep"]}},
        "metric": "value",
        "budget": 8,
        "sampler": "random",
        **study,
    }
    body = {"spec": json.dumps(own), "name": own["name"], "base": str(SCRIPTS)}
    site.client.call("POST", "studies", body=body)
    site.until(lambda: site.get(f"studies/{own['name']}")["ended_at"], 3 * LONG_S, "it has ended")
    found: dict[str, Any] = site.get(f"studies/{own['name']}")
    return found


def expected(t: dict[str, Any], steps: int) -> float:
    factor = 2 if t["params"]["kind"] == "steep" else 1
    return float((t["params"]["x"] - 0.3) ** 2 * factor + 1.0 / steps)


def test_a_script_of_optuna_is_a_trial_that_prunes_itself_at_its_rung(site: Site) -> None:
    study = until_ended(
        site, {"name": "pruned", "trials": 2, "stopping": {"halving": {"least": 4, "eta": 2}}}
    )
    assert study["status"] == "completed"
    assert Counter(t["status"] for t in study["table"]) == {"completed": 1, "stopped": 1}
    for t in study["table"]:
        for samples, value in t["results"]:
            assert value == pytest.approx(expected(t, samples))
    assert study["best"]["number"] == min(study["table"], key=lambda t: expected(t, 4))["number"]


def test_a_script_of_optuna_is_a_trainer_with_a_search_of_its_own(site: Site) -> None:
    url = f"sqlite:///{site.root / 'own.db'}"
    site.submit("own", SCRIPT, "--trials", "3", "--storage", url, n_max=1, launcher="torchrun")
    site.until(lambda: site.trainer("own")["status"] == "completed", 2 * LONG_S, "it has completed")
    assert len(optuna.load_study(study_name="own", storage=url).trials) == 3
