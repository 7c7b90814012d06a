"""What the daemon and its trainers do while a part of Slurm is away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from slurm.testbed import Testbed
from tests.support.slurm_site import SlurmSite

SLOW_S = 120.0


@pytest.fixture
def site(bed: Testbed) -> Iterator[SlurmSite]:
    site = SlurmSite(bed)
    try:
        site.start()
        yield site
    finally:
        if not bed.status()["slurmctld"]:
            bed.start_controller()
        bed.continue_controller()
        site.close()
        bed.wait_idle()


def train(site: SlurmSite, nodes: int = 2) -> None:
    """A trainer that does not end by itself."""
    notes = site.root / "notes"
    notes.mkdir()
    site.submit("count", "count.py", str(notes), "0.05", n_max=nodes)


def trains(site: SlurmSite, nodes: int = 2) -> None:
    site.until(lambda: len(site.trainer("count")["members"]) == nodes, SLOW_S, f"it trains on {nodes} nodes")
    goes_on(site)


def goes_on(site: SlurmSite) -> None:
    before = site.trainer("count")["samples"]
    site.until(lambda: site.trainer("count")["samples"] > before, SLOW_S, "it goes on")


def until_all_is_well(site: SlurmSite) -> None:
    site.until(lambda: site.alive() and site.get("status")["state"] == "ok", SLOW_S, "all is well")
    states = {"idle", "alloc"}
    site.until(lambda: set(site.bed.states().values()) <= states, SLOW_S, "Slurm knows its nodes")


def test_a_trainer_does_not_notice_a_restart_of_slurmctld(site: SlurmSite) -> None:
    train(site)
    trains(site)
    workers, generation = site.workers(), site.trainer("count")["generation"]
    site.bed.stop_controller()
    site.until(lambda: "poll_failed" in site.log, SLOW_S, "the daemon notices")
    goes_on(site)
    site.bed.start_controller()
    until_all_is_well(site)
    goes_on(site)
    assert site.workers() == workers
    assert site.trainer("count")["generation"] == generation


def test_a_daemon_killed_while_slurmctld_is_away_takes_its_pilots_over(site: SlurmSite) -> None:
    train(site)
    trains(site)
    workers, generation = site.workers(), site.trainer("count")["generation"]
    site.bed.stop_controller()
    site.kill_daemon()
    site.launch()
    site.until(lambda: "cannot be asked yet" in site.log, SLOW_S, "the daemon waits for slurmctld")
    site.bed.start_controller()
    until_all_is_well(site)
    goes_on(site)
    assert site.workers() == workers
    assert site.trainer("count")["generation"] == generation


def test_a_worker_is_replaced_while_slurmctld_hangs(site: SlurmSite) -> None:
    train(site)
    trains(site)
    generation = site.trainer("count")["generation"]
    site.bed.pause_controller()
    os.kill(site.workers()[0], signal.SIGKILL)
    site.until(lambda: site.trainer("count")["generation"] > generation, SLOW_S, "the others go on")
    trains(site)
