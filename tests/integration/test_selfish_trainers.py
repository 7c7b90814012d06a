"""Trainers that would keep nodes and places from others, on a daemon with real processes."""

from __future__ import annotations

import json
from typing import Any

from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S


def submit(site: Site, name: str, command: list[str], **nodes: int) -> Any:
    spec = {"name": name, "command": command, "nodes": nodes}
    body = {"spec": json.dumps(spec), "name": f"{name}.yaml", "base": str(site.root)}
    return site.client.call("POST", "trainers", body=body)


def test_a_script_that_never_trains_loses_its_nodes() -> None:
    with running(always("n1", "n2"), start_timeout_s=3, max_failures=0) as site:
        submit(site, "sleeper", ["sleep", "1000"], max=2)
        ended = site.until_ended("sleeper")
        assert ended["status"] == "failed"
        assert f"did not reach elastic.Run within 3 s; see bftrainer logs {ended['id']} " in ended["reason"]
        site.until(lambda: not site.workers(), LONG_S, "no worker is left")


def test_trainers_that_can_never_run_are_in_nobodys_way() -> None:
    with running(always("n1", "n2"), max_parallel=2) as site:
        site.until(lambda: site.get("pool")["size"] == 2, LONG_S, "both nodes are in the pool")
        for i in range(3):
            submit(site, f"huge{i}", ["true"], min=1_000_000, max=1_000_000)
        site.submit("small", "count.py", str(site.root), samples=200, n_max=1)
        assert site.until_ended("small")["status"] == "completed"
        why = "can never run: needs at least 1,000,000 nodes; this machine has 2"
        assert submit(site, "more", ["true"], min=1_000_000, max=1_000_000)["note"] == why
        rows = {t["name"]: (t["status"], t["reason"]) for t in site.get("trainers")}
        assert [rows[f"huge{i}"] for i in range(3)] == [("waiting", why)] * 3
