"""Horovod trainers with real workers: every sample counts once, whatever happens to the nodes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.audit import audit
from tests.support.disturb import cancel
from tests.support.driver_alone import as_daemon, driver_alone
from tests.support.processes import read
from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S

pytest.importorskip("horovod", reason="Horovod is not installed; run make horovod")

SAMPLES = 6_000
NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    """One for all tests: its warm processes have imported PyTorch and Horovod."""
    with running(always(*NODES)) as site:
        yield site


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """What a test that failed has left running is no other test's."""
    yield shared
    cancel(shared, *(trainer["name"] for trainer in shared.get("trainers")))


def submit(site: Site, name: str, notes: Path) -> None:
    """Have a trainer train on all nodes, so slowly that its work outlasts a daemon's restart."""
    words = ("count_horovod.py", str(notes), "0.5")
    site.submit(name, *words, samples=SAMPLES, launcher="horovod", checkpoint={"every_s": 1}, n_max=4)
    site.until_members(name, *NODES)


def ends_well(site: Site, name: str, notes: Path) -> None:
    """The work is done once, as fast as it can be from now on, and nothing of the trainer is left."""
    (notes / "fast").touch()
    trainer = site.until_ended(name)
    assert (trainer["status"], trainer["samples"]) == ("completed", SAMPLES), site.story()
    assert trainer["warned"] == []
    audit(notes, SAMPLES)
    site.until(lambda: not site.workers() and not drivers(site), LONG_S, "no worker and no driver")


def drivers(site: Site) -> list[int]:
    return [pid for pid in site.processes() if b"elastic.horovod.driver" in read(pid, "cmdline")]


def test_peers_of_the_dead_do_not_wait_for_horovods_time_out(site: Site, notes: Path) -> None:
    """With four workers some have no connection to the one that dies that would tell them."""
    submit(site, "peers", notes)
    victim = site.trainer("peers")["members"][-1]
    os.kill(site.worker_on(victim), signal.SIGKILL)
    site.until(lambda: victim not in site.trainer("peers")["members"], LONG_S, "the loss is told")
    ends_well(site, "peers", notes)
    logs = [path.read_text() for path in site.trainers.glob("*-peers-*/*.log")]
    assert len(logs) == len(NODES)
    assert not any("Timed out waiting" in log for log in logs)


def test_a_killed_driver_costs_no_samples(site: Site, notes: Path) -> None:
    submit(site, "driverless", notes)
    os.kill(drivers(site)[0], signal.SIGKILL)
    ends_well(site, "driverless", notes)


def test_a_driver_outlives_its_daemon_and_is_found_again(site: Site, notes: Path) -> None:
    submit(site, "found", notes)
    before = drivers(site)
    site.kill_daemon()
    site.start()
    site.until_members("found", *NODES)
    assert drivers(site) == before
    ends_well(site, "found", notes)


def test_a_daemon_that_is_killed_while_its_driver_talks_does_not_take_it_along(tmp_path: Path) -> None:
    with driver_alone(tmp_path) as path:
        with as_daemon(path) as daemon:
            up = daemon.recv(1)  # and no more: what is left unread makes the kernel reset the connection
        with as_daemon(path) as daemon:
            assert daemon.recv(1) == up


def test_the_next_daemon_hears_which_workers_wait_for_a_place(tmp_path: Path) -> None:
    with driver_alone(tmp_path) as path, as_daemon(path) as daemon, daemon.makefile("rb") as lines:
        port = heard(lines, "up")["port"]
        daemon.sendall(b'{"type": "world", "generation": 1, "hosts": ["a.1", "b.1"]}\n')
        with asked(port, "GET", "/rank_and_size/a.1:0"):
            heard(lines, "asking")
            daemon.shutdown(socket.SHUT_RDWR)
            with as_daemon(path) as following, following.makefile("rb") as told:
                assert heard(told, "asking")["host"] == "a.1"


def test_a_worker_is_connected_when_it_has_done_all_that_connecting_takes(tmp_path: Path) -> None:
    with driver_alone(tmp_path) as path, as_daemon(path) as daemon, daemon.makefile("rb") as lines:
        port = heard(lines, "up")["port"]
        daemon.sendall(b'{"type": "world", "generation": 1, "hosts": ["a.1", "b.1"]}\n')
        with asked(port, "GET", "/rank_and_size/a.1:0") as a, asked(port, "GET", "/rank_and_size/b.1:0") as b:
            assert {a.getresponse().status, b.getresponse().status} == {200}
        for rank in (0, 1):
            with asked(port, "DELETE", f"/global_0_process_set/{rank}") as done:
                done.getresponse()
        daemon.sendall(b'{"type": "gone", "host": "b.1"}\n')
        assert heard(lines, "torn")["generation"] == 1, "a's other connections are not there yet"


def heard(lines: IO[bytes], kind: str) -> dict[str, Any]:
    """The next message of a kind that a driver says to its daemon."""
    return next(message for line in lines if (message := json.loads(line))["type"] == kind)


def asked(port: int, method: str, path: str) -> contextlib.closing[HTTPConnection]:
    """A worker's question to its driver, with the answer to come."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path)
    return contextlib.closing(connection)


def test_workers_whose_gradients_are_not_averaged_are_told(site: Site, notes: Path) -> None:
    words = ("count_horovod.py", str(notes), "0", "apart")
    site.submit("apart", *words, samples=SAMPLES, launcher="horovod", n_min=2, n_max=2)
    trainer = site.until_ended("apart")
    (warned,) = trainer["warned"]
    assert warned.startswith("the ranks do not train one model: parameter "), site.story()
