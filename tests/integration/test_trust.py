"""Live: a trainer whose nodes differ ends with the reason, and members wait for one that is busy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.site import Site, running_at_will

BUSY_AT = 20
"""The step before which the script's rank 0 is busy."""


@pytest.fixture
def site() -> Iterator[Site]:
    with running_at_will("a", "b") as site:
        site.change(give="ab")
        yield site


def submit(site: Site, what: str) -> None:
    site.submit("t", "wrongly.py", str(site.root), what, samples=800, n_min=2, n_max=2)


def test_a_trainer_whose_nodes_differ_fails_at_once_and_says_in_what(site: Site) -> None:
    submit(site, "differ")
    ended = site.until_ended("t")
    assert ended["status"] == "failed"
    assert "parameter 0 of SGD no. 1 outside of the run is " in ended["reason"]
    ready = [row["data"]["nodes"] for row in site.get("events", limit=1000) if row["kind"] == "WorkersReady"]
    assert sorted(node for nodes in ready for node in nodes) == ["a", "b"], "tried once"


def test_nodes_that_differ_in_the_last_steps_are_found_at_the_end(site: Site) -> None:
    submit(site, "late")
    ended = site.until_ended("t")
    assert ended["status"] == "failed"
    assert "after step 104 the nodes do not have the same state: model.weight is " in ended["reason"]


def test_members_wait_for_one_that_is_busy_and_nothing_is_learnt_of_it(site: Site) -> None:
    submit(site, "busy")
    ended = site.until_ended("t")
    assert (ended["status"], ended["samples"]) == ("completed", 800)
    assert "broke" not in (site.root / "daemon.log").read_text()
    pauses = site.get("pauses", limit=100)
    assert pauses and all(row["step"] < BUSY_AT for row in pauses)
    name, number, folder = (site.root / "told").read_text().split()
    assert (name, int(number)) == ("t", ended["id"])
    assert Path(folder).parent == site.trainers and (Path(folder) / "a.log").exists()
