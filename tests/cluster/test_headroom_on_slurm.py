"""Idle nodes left to main jobs on a real Slurm, and what an admin sees of the jobs' waits, in both modes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slurm.testbed import Testbed
from tests.support.slurm_site import SlurmSite, on_testbed

SLOW_S = 120.0
SOON_S = 10.0
"""Slurm itself takes a second or two; without its node a job would wait for hours."""


@pytest.fixture(params=["preempt", "window"])
def site(request: pytest.FixtureRequest) -> Iterator[SlurmSite]:
    bed = Testbed(nodes=4, preemption=request.param == "preempt")
    with on_testbed(bed, headroom=1, slurm_mode=request.param) as site:
        yield site


def members(site: SlurmSite) -> int:
    return len(site.trainer("count")["members"])


def main_job(site: SlurmSite, nodes: int) -> str:
    words = ["sbatch", "--parsable", "--output=/dev/null", "--partition=batch", "--time=10", f"-N{nodes}"]
    job = site.bed.run([*words, "--wrap", "exec sleep 300"]).stdout.strip()

    def runs() -> bool:
        return site.bed.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.split() == ["RUNNING"]

    site.until(runs, SOON_S, f"job {job} runs")
    return job


def impact(site: SlurmSite) -> dict[str, Any]:
    found: dict[str, Any] = site.get("admin/impact", days=1)
    return found


def test_a_small_job_needs_no_node_of_ours_and_a_larger_one_is_seen_to(site: SlurmSite) -> None:
    notes = site.root / "notes"
    notes.mkdir()
    site.submit("count", "count.py", str(notes), "0.05", n_max=4)
    site.until(lambda: members(site) == 3, SLOW_S, "it trains on three nodes, and one is left")
    site.until(lambda: site.get("status")["headroom"]["free"] == 1, SLOW_S, "it is idle")
    small = main_job(site, 1)
    site.until(lambda: impact(site)["all"]["count"] == 1, SLOW_S, "its start is stored")
    waited = [row for row in impact(site)["worst"] if row["job"] == small]
    assert all(row["wait_s"] < SOON_S for row in waited), "a poll may see it before Slurm starts it"
    site.until(lambda: members(site) == 2, SLOW_S, "another node is left instead")
    site.until(lambda: site.get("status")["headroom"]["free"] == 1, SLOW_S, "it is idle")
    large = main_job(site, 3)
    site.until(lambda: impact(site)["all"]["count"] == 2, SLOW_S, "its start is stored")
    found = impact(site)
    assert found["affected"]["count"] == 1 + len(waited), f"job {large} needed both nodes of ours"
    (worst,) = (row for row in found["worst"] if row["job"] == large)
    assert worst["nodes"] == 3
    assert worst["wait_s"] < SOON_S
    assert worst["why"]
