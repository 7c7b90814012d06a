"""A daemon on an emulated LSF: from an idle host to a worker there, and back to a main job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.schedulers.shared import pilot_job
from lsf.emulator.emulator import Emulator
from tests.support.lsf_site import LsfSite, begun
from tests.support.waiting import LONG_S

DAY_S = 86_400.0


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(hosts=3, cycle_s=0.5) as found:
        yield found


def test_a_trainer_has_idle_hosts_until_main_jobs_want_them(emulator: Emulator) -> None:
    begun(emulator, long := emulator.main_job(seconds=DAY_S / 2, only=["h2"]))
    site = LsfSite(emulator)
    try:
        site.start()
        site.submit("a", "steady.py", n_max=2)
        site.until_members("a", "h1", "h3")
        assert {job["name"].rpartition("-")[2] for job in site.pilots()} == {"h1", "h3"}
        main = emulator.main_job(seconds=5.0, only=["h1"])
        begun(emulator, main)
        site.until_members("a", "h3")
        jobs = {node["node"]: node["job"] for node in site.client.call("GET", "pool")["nodes"]}
        assert jobs["h2"] == str(long) and jobs["h3"] == ""
        site.until_members("a", "h1", "h3")  # it ends soon, and its host comes back
        events = site.client.call("GET", "events", limit=100)
        changes = [event["data"] for event in events if event["kind"] == "NodesChanged"]
        told = [data["jobs"] for data in changes if data["jobs"]]
        assert {str(main): ["h1"]} in told, "the daemon says which job took it, whatever it gave back before"
        told = str(site.client.call("GET", "admin/impact", days=1.0))
        assert "The daemon has seen 1 of the " in told, told
        site.client.call("POST", "admin/drain")
        site.until(lambda: not site.pilots(), LONG_S, "all pilots have ended")
        assert site.trainer("a")["members"] == []
    finally:
        site.close()


def test_pilots_beyond_the_hosts_that_trainers_want_are_cancelled(emulator: Emulator) -> None:
    site = LsfSite(emulator)
    try:
        site.start()
        site.submit("a", "steady.py", n_max=3)
        site.until_members("a", "h1", "h2", "h3")
        site.client.call("DELETE", "trainers/a")
        site.submit("b", "steady.py", n_max=1)
        site.until(lambda: len(site.pilots()) == 1, LONG_S, "two of three pilots are cancelled")
        (kept,) = site.pilots()
        site.until(lambda: site.trainer("b")["members"] == kept["hosts"], LONG_S, "b trains on the third")
        ends = {job["why"] for job in emulator.jobs() if job["state"] in ("DONE", "EXIT")}
        assert ends <= {"", "TERM_OWNER"}, "the daemon has told them to end, and LSF preempted none"
    finally:
        site.close()


def test_a_daemon_that_was_killed_takes_its_pilots_over(emulator: Emulator) -> None:
    site = LsfSite(emulator)
    try:
        site.start()
        site.submit("a", "steady.py", n_max=3)
        site.until_members("a", "h1", "h2", "h3")
        before = {job["id"] for job in site.pilots()}
        site.kill_daemon()
        site.start()
        site.until_members("a", "h1", "h2", "h3")
        assert {job["id"] for job in site.pilots()} == before
    finally:
        site.close()


def test_pilots_that_land_elsewhere_are_used_where_they_landed(tmp_path: Path) -> None:
    """As in Summit's easy mode, in which LSF chooses the hosts."""
    template = tmp_path / "easy.sh.j2"
    written = pilot_job.find("lsf-pilot.sh.j2").read_text()
    template.write_text(written.replace("{{ node }} --tag", '"${LSB_MCPU_HOSTS%% *}" --tag'))
    with Emulator(hosts=5, cycle_s=0.5) as emulator:
        emulator.manners(elsewhere=True)
        site = LsfSite(emulator, pilot_template=template)
        try:
            site.start()
            site.submit("a", "steady.py", n_max=2)
            site.until(lambda: len(site.trainer("a")["members"]) == 2, LONG_S, "it trains on two hosts")
            landed = [job for job in site.pilots() if job["hosts"]]
            assert all(job["name"].rpartition("-")[2] not in job["hosts"] for job in landed)
            assert set(site.trainer("a")["members"]) <= {host for job in landed for host in job["hosts"]}
        finally:
            site.close()
