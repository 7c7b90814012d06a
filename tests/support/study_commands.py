"""A study by the commands that a user has, on whatever scheduler a site's daemon runs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.site import SCRIPTS, Site
from tests.support.waiting import LONG_S


def bftrainer(site: Site, *words: str) -> str:
    """What a command prints; it must end well."""
    command = [sys.executable, "-m", "bftrainer", *words, "--state-dir", str(site.state)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=LONG_S, env=site.environ
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def asked(site: Site, *words: str) -> Any:
    return json.loads(bftrainer(site, *words, "--json"))


def written(site: Site, name: str, **more: Any) -> Path:
    """A study file of two trials; the one with the better x is to have 400 samples, the other 200."""
    notes = site.root / name
    notes.mkdir()
    trainer = {
        "command": ["python", "score.py", str(notes), "{trial}", "{x}", "1"],
        "workdir": str(SCRIPTS),
        "curve": [[1, 60]],
        **more.pop("trainer", {"nodes": {"max": 1}}),
    }
    study = {
        "name": name,
        "trainer": trainer,
        "space": {"x": {"float": [0.0, 1.0]}},
        "sampler": "random",
        "metric": "score",
        "direction": "maximize",
        "trials": 2,
        "budget": 400,
        "parallelism": 1,  # so one pilot, which has imported PyTorch for all trials
        "stopping": {"halving": {"least": 200, "eta": 2}},
        **more,
    }
    path = site.root / f"{name}.yaml"
    path.write_text(json.dumps(study))
    return path


def a_study_by_all_its_commands(site: Site, **more: Any) -> dict[str, Any]:
    """From plan and submission to the best trial and its results. What `study show` says at the end."""
    path = written(site, "halves", **more)
    plan = asked_offline("plan", str(path), "--deadline", "1h")
    assert plan["feasible"], plan
    assert asked(site, "study", "submit", str(path))["name"] == "halves"
    site.until(lambda: any(t["samples"] for t in table(site)), LONG_S, "a trial trains")
    assert asked(site, "study", "pause", "halves")["status"] == "paused"
    site.until(lambda: not asked(site, "study", "show", "halves")["nodes"], LONG_S, "no trial has a node")
    assert [study["status"] for study in asked(site, "study", "list")] == ["paused"]
    assert asked(site, "study", "priority", "halves", "0.5")["priority"] == 0.5
    assert asked(site, "study", "resume", "halves")["status"] == "running"
    site.until(lambda: any(t["trainer"] for t in table(site)), LONG_S, "a trial goes on")
    assert "halves." in bftrainer(site, "queue") + bftrainer(site, "list")
    (site.root / "halves" / "fast").touch()
    site.until(lambda: asked(site, "study", "show", "halves")["ended_at"], LONG_S, "the study has ended")
    return _ended(site)


def _ended(site: Site) -> dict[str, Any]:
    """What all commands say of the study that has ended."""
    found: dict[str, Any] = asked(site, "study", "show", "halves")
    assert found["status"] == "completed"
    assert Counter(len(t["results"]) for t in found["table"]) == {1: 1, 2: 1}
    best = min(found["table"], key=lambda t: abs(t["params"]["x"] - 0.3))
    assert asked(site, "study", "best", "halves")["number"] == best["number"]
    assert asked(site, "study", "show", "halves", "--trial", "1")["number"] == 1
    rows = list(csv.DictReader(io.StringIO(bftrainer(site, "study", "export", "halves"))))
    assert [float(row["x"]) for row in rows] == [t["params"]["x"] for t in found["table"]]
    page = site.root / "halves.html"
    bftrainer(site, "study", "export", "halves", "--to", "html", "-o", str(page))
    assert "halves" in page.read_text("utf-8")
    again = written(site, "again")
    bftrainer(site, "study", "submit", str(again))
    assert asked(site, "study", "cancel", "again")["status"] == "cancelled"
    return found


def table(site: Site) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = asked(site, "study", "show", "halves")["table"]
    return trials


def asked_offline(*words: str) -> Any:
    """A command that asks no daemon."""
    command = [sys.executable, "-m", "bftrainer", *words, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)
