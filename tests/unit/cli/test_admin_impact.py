"""What `admin impact` and `status` print of main jobs and of what is left to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner

from bftrainer.cli import admin_impact
from bftrainer.cli.status_command import _headroom
from bftrainer.daemon.answers.views.impact import DAY_S, ImpactView, impact_view
from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.testing.store import START

Printed = Callable[..., str]
QUICK = replace(START, affected=Affected.NO, given=0, seen_s=None, vacate_s=None, requeued=0, wait_s=0.5)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Printed:
    """What the command prints of these starts."""

    def run(starts: list[MainStart], *words: str) -> str:
        class Client:
            def call(self, method: str, path: str, **query: float) -> ImpactView:
                assert (method, path) == ("GET", "admin/impact")
                return impact_view(starts, query["days"], DAY_S, ["nobody can tell more"])

        monkeypatch.setattr(admin_impact, "connect", lambda config, state_dir: Client())
        done = CliRunner().invoke(admin_impact.command, list(words), env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    return run


def test_the_page_shows_both_kinds_of_jobs_and_the_longest_waits(printed: Printed) -> None:
    said = printed(
        [
            QUICK,
            QUICK,
            replace(START, where="n[1-2]"),
            replace(START, time=START.time + DAY_S, job="18", wait_s=2.5),
        ]
    )
    lines = [line.split() for line in said.splitlines()]
    assert ["nodes", "of", "ours", "in", "the", "way", "2", *["0.75", "s"], *["2.50", "s"] * 3] in lines
    assert ["none", "of", "ours", "in", "the", "way", "2", *["0.50", "s"] * 4] in lines
    assert "2 jobs were given 4 nodes within 0.12 s (median), 0.12 s at most." in said
    assert "Jobs went back to the queue 2 times before they started with nodes of ours in the way" in said
    assert said.index("18 ") < said.index("17 "), "the longest wait comes first"
    assert "then 0.4 s to be cleared and started" in said
    assert "02 Jan" in said and "n[1-2]" in said
    assert "nobody can tell more" in said


def test_where_nothing_is_known_it_says_so(printed: Printed) -> None:
    said = printed([], "--days", "3")
    assert "No main job has been seen to start in the last 3 days." in said
    assert "nobody can tell more" in said
    assert json.loads(printed([], "--json"))["all"]["count"] == 0


@pytest.mark.parametrize("days", ["0", "-1", "367", "x"])
def test_impossible_days_are_refused(days: str) -> None:
    assert CliRunner().invoke(admin_impact.command, ["--days", days]).exit_code == 2


def test_the_status_says_what_is_left_and_how_the_promise_stands() -> None:
    room = {
        "setting": "10%",
        "wanted": 2,
        "usable": 12,
        "free": 3,
        "promised": None,
        "extra": 0,
        "at_risk": "",
    }
    left = "3 of 12 idle nodes are free; the daemon aims to keep 2 free for main jobs (10%)"
    assert _headroom(room) == [left]
    promised = {**room, "promised": {"median_s": 0.2, "p99_s": 1.0}}
    assert _headroom(promised)[1] == "promise (median 0.2 s, p99 1 s): kept"
    at_risk = {**promised, "extra": 0.05, "at_risk": "2 of 9 waited"}
    assert _headroom(at_risk)[1] == "promise (median 0.2 s, p99 1 s): 5% is left for it: 2 of 9 waited"
