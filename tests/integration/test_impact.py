"""What is left to main jobs, and what they waited, with a real daemon; the log plays the main scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.site import Site, running_at_will
from tests.support.waiting import LONG_S

NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def site() -> Iterator[Site]:
    with running_at_will(*NODES, headroom="25%") as site:
        yield site


def impact(site: Site, *words: str) -> str:
    command = [sys.executable, "-m", "bftrainer", "admin", "impact", "--state-dir", str(site.state), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=site.environ)
    return done.stdout


def test_a_node_stays_idle_and_an_admin_sees_which_main_jobs_found_one_of_ours(site: Site) -> None:
    assert "No main job" in impact(site)
    site.change(give=NODES)
    notes = site.root / "notes"
    notes.mkdir()
    site.submit("count", "count.py", str(notes), "0.05", n_max=4)
    site.until(lambda: len(site.trainer("count")["members"]) == 3, LONG_S, "it trains on three of four")
    room = site.get("status")["headroom"]
    assert (room["wanted"], room["usable"], room["free"]) == (1, 4, 1)
    (left,) = [n["node"] for n in site.get("pool")["nodes"] if n["why"] == "left to main jobs (headroom)"]
    ours = site.trainer("count")["members"]
    site.change(take=[left])
    site.until(lambda: len(site.trainer("count")["members"]) == 2, LONG_S, "another one is left instead")
    stays = sorted(site.trainer("count")["members"])
    assert set(stays) < set(ours)
    site.change(take=stays[:1])

    def told() -> dict[str, object]:
        found: dict[str, object] = json.loads(impact(site, "--json", "--days", "1"))
        return found

    def counted(kind: str) -> bool:
        return bool(told()[kind]["count"] == 1)  # type: ignore[index]

    site.until(
        lambda: counted("affected") and counted("unaffected"), LONG_S, "and the one that took the idle node"
    )
    found = told()
    assert found["taken"] == 1
    assert [job["where"] for job in found["worst"]] == stays[:1], "it is known which node of ours it took"
    shown = impact(site)
    assert "nodes of ours in the way" in shown
    assert "log-" in shown
    site.kill_daemon()
    site.start()
    assert told()["worst"] == found["worst"], "it is in the store"
    assert told()["all"]["count"] == 2  # type: ignore[index]
