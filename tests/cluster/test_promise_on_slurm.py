"""A promise to main jobs on a real Slurm: where it is at risk less is harvested, and everybody is told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from slurm.testbed import Testbed
from slurm.testbed.ports import free_ports
from tests.support.slurm_site import SlurmSite, on_testbed

NODES = 4
SLOW_S = 120.0
SOON_S = 10.0
HARDLY_S = 0.01
"""No job that needs a node of ours waits less. Two such jobs are more than one in a hundred."""


@pytest.fixture
def site() -> Iterator[SlurmSite]:
    promise = f"median_s={HARDLY_S},p99_s={HARDLY_S}"
    with (
        free_ports(1) as (port,),
        on_testbed(Testbed(nodes=NODES), headroom=0, promise=promise, metrics_port=port) as site,
    ):
        yield site


def members(site: SlurmSite) -> int:
    return len(site.trainer("count")["members"])


def one_job(site: SlurmSite) -> None:
    """A main job of one node comes and goes."""
    words = ["sbatch", "--parsable", "--output=/dev/null", "--partition=batch", "--time=10", "-N1"]
    job = site.bed.run([*words, "--wrap", "exec sleep 300"]).stdout.strip()

    def runs() -> bool:
        return site.bed.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.split() == ["RUNNING"]

    def seen() -> bool:
        return job in {worst["job"] for worst in site.get("admin/impact", days=1)["worst"]}

    site.until(runs, SOON_S, f"job {job} runs")
    site.until(seen, SLOW_S, f"the start of job {job} is stored, with a node of ours in its way")
    (where,) = [one["where"] for one in site.get("admin/impact", days=1)["worst"] if one["job"] == job]
    (node,) = [node for node in site.get("pool")["nodes"] if node["node"] == where]
    assert node["job"] == job and 0 < node["until"] - time.time() <= 601, "who has it, and until when"

    def told() -> bool:
        changes = (row["data"] for row in site.client.rows("events", 1000) if row["kind"] == "NodesChanged")
        return [where] in [data["jobs"].get(job) for data in changes]

    site.until(told, SOON_S, f"it is told that job {job} took {where}")
    site.bed.run(["scancel", job])


def said(site: SlurmSite, *words: str) -> str:
    command = [sys.executable, "-m", "bftrainer", *words, "--state-dir", str(site.state)]
    wide = site.environ | {"COLUMNS": "500"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout


def test_a_promise_at_risk_leaves_a_node_to_main_jobs_and_is_told_everywhere(site: SlurmSite) -> None:
    notes = site.root / "notes"
    notes.mkdir()
    site.submit("count", "count.py", str(notes), "0.05", n_max=NODES)
    site.until(lambda: members(site) == NODES, SLOW_S, "it trains on all nodes")
    assert site.get("status")["headroom"]["extra"] == 0
    assert "): kept" in said(site, "status")
    one_job(site)
    site.until(lambda: members(site) == NODES, SLOW_S, "a single slow job breaks nothing")
    assert "is kept." in said(site, "admin", "impact")
    one_job(site)
    site.until(lambda: site.get("status")["headroom"]["extra"] > 0, SLOW_S, "the promise is at risk")
    site.until(lambda: members(site) == NODES - 1, SLOW_S, "it has one node less, which stays idle")
    site.until(lambda: site.get("status")["headroom"]["free"] == 1, SLOW_S, "the node is idle")
    room = site.get("status")["headroom"]
    assert (room["extra"], room["wanted"], members(site)) == (0.05, 1, NODES - 1)
    why = "2 of the last 2 main jobs waited more than 0.01 s, and nodes of ours were in the way of 2 of them"
    assert room["at_risk"] == why
    (event,) = [event for event in site.client.rows("events", 1000) if event["kind"] == "HeadroomChanged"]
    assert event["data"]["share"] == 0.05 and why in event["data"]["reason"]
    assert f"5% is left for it: {why}" in said(site, "status")
    assert f"was at risk: {why}. 5% of what is idle or ours is left for it." in said(site, "admin", "impact")
    assert f"HeadroomChanged the promise to main jobs is at risk: {why}" in said(site, "events", "-n", "1000")
    with urlopen(f"http://127.0.0.1:{site.environ['BFTRAINER_METRICS_PORT']}/metrics") as answer:
        assert "bftrainer_promise_extra 0.05" in answer.read().decode()
    assert why in site.log
