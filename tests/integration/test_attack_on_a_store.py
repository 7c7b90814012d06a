"""A stranger fills the store of one torchrun trainer: the daemon and the other trainer do not notice."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from datetime import timedelta

import pytest
from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

from bftrainer.elastic.programs.confine import MB
from tests.support.site import Site, running_at_will
from tests.support.waiting import LONG_S

psutil = pytest.importorskip("psutil", reason="psutil comes with Horovod; run make horovod")
MEMORY_MB = 32


@pytest.fixture
def site() -> Iterator[Site]:
    settings = {
        "poll_s": 0.05,
        "t_fwd_s": 60,
        "max_helper_memory_mb": MEMORY_MB,
    }
    with running_at_will("a", "b", "c", "d", **settings) as site:
        yield site


def submit(site: Site, name: str) -> None:
    (site.root / name).mkdir()
    site.submit(
        name,
        *("count_torchrun.py", str(site.root / name), "0.1"),
        samples=1_000_000,
        n_min=2,
        n_max=2,
        checkpoint={"every_s": 0.3},
        launcher="torchrun",
    )


def ports(site: Site) -> set[int]:
    """Where the stores of all trainers listen."""
    assert site.daemon is not None
    found = set()
    for process in psutil.Process(site.daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            if "bftrainer.elastic.programs.tcp_store" in process.cmdline():
                found |= {c.laddr.port for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
    return found


def fill(port: int) -> None:
    """Put more into a store than it may hold."""
    attacker = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30))
    with pytest.raises(DistNetworkError):
        for number in range(10 * MEMORY_MB):
            attacker.set(f"k{number}", "x" * MB)


def trains_on(site: Site, name: str) -> None:
    step = site.trainer(name)["step"]
    site.until(lambda: site.trainer(name)["step"] > step + 5, LONG_S, f"{name} trains on")


def test_a_filled_store_harms_neither_the_daemon_nor_another_trainer(site: Site) -> None:
    site.change(give=["a", "b"])
    submit(site, "one")
    site.until_members("one", "a", "b")
    trains_on(site, "one")
    (victim,) = ports(site)
    submit(site, "two")
    site.change(give=["c", "d"])
    site.until_members("two", "c", "d")
    trains_on(site, "two")
    other = ports(site) - {victim}
    fill(victim)
    site.until(lambda: ports(site) == other, LONG_S, "the filled store has ended")
    trains_on(site, "one")
    trains_on(site, "two")
    assert {event["kind"] for event in site.get("events", limit=100)} & {"WorkerLost", "Resync"} == set()
    os.kill(site.worker_on("b"), signal.SIGKILL)
    site.until(lambda: len(ports(site)) == 2, LONG_S, "the next run has a store of its own")
    site.until_members("one", "a", "b")
    trains_on(site, "one")
    assert other <= ports(site)
    assert site.get("status")["state"] == "ok"
