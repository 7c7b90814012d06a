"""Clients of the emulated LSF when its server is busy, silent or gone, and jobs of several users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsf.emulator import Emulator, EmulatorError, sites
from lsf.emulator.core.model import Closed
from lsf.emulator.sessions import below
from tests.support.waiting import LONG_S

DOWN = "LSF is down. Please wait ...\n"
ONCE = {"LSB_NTRIES": "1"}


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    with Emulator(hosts=2) as found:
        yield found


@pytest.fixture
def lsf(shared: Emulator) -> Iterator[Emulator]:
    yield shared
    shared.manners(down=0, hang=False, unanswered=0, missing=0)
    shared.run("bkill", "-u", "all", "-s", "KILL", "0")
    until(lambda: all(job["state"] in ("DONE", "EXIT") for job in shared.jobs()))


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_client_tries_again_as_often_as_it_may(lsf: Emulator) -> None:
    lsf.manners(down=1)
    said = lsf.run("lsid")
    assert said.returncode == 0 and said.stderr == DOWN and said.stdout.startswith("IBM Spectrum LSF")
    lsf.manners(down=5)
    said = lsf.run("lsid", env={**lsf.env, "LSB_NTRIES": "2"})
    assert (said.returncode, said.stdout, said.stderr) == (255, "", 2 * DOWN)


def test_a_client_waits_for_ever_if_nothing_is_answered(lsf: Emulator) -> None:
    """It says so before, so that it can be ended in time."""
    lsf.manners(hang=True)
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(["bsub", "true"], env=lsf.env, **pipes) as client:
        assert client.stderr is not None and client.stderr.readline() == DOWN.encode()
        assert client.poll() is None
        client.kill()
    lsf.manners(hang=False)
    before = len(lsf.jobs())
    lsf.manners(unanswered=1)
    with pytest.raises(subprocess.TimeoutExpired):
        lsf.run("bsub", "-J", "unsure", "sleep", "1000", timeout=2)
    assert [job["name"] for job in lsf.jobs()[before:]] == ["unsure"], "it was submitted nonetheless"


def test_a_client_without_a_server_is_told_that_lsf_is_down(tmp_path: Path) -> None:
    found = Emulator(hosts=1, directory=tmp_path / "lsf")
    found.up()
    found.control("stop")
    until(lambda: not (tmp_path / "lsf" / "socket").exists())
    said = found.run("bjobs", env={**found.env, **ONCE})
    assert (said.returncode, said.stdout, said.stderr) == (255, "", DOWN)
    found.down()
    assert not (tmp_path / "lsf").exists()


def test_the_server_ends_with_its_parent() -> None:
    program = (
        "from lsf.emulator import Emulator\nimport os\n"
        "lsf = Emulator(hosts=1)\nlsf.up()\n"
        "lsf.run('bsub', 'sleep', '1000', check=True)\n"
        "print(lsf.directory, lsf.jobs()[0]['pid'], flush=True)\nos._exit(0)\n"
    )
    words = [sys.executable, "-c", program]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LONG_S)
    directory, pid = said.stdout.split()
    until(lambda: not Path(directory, "socket").exists())
    until(lambda: not below(int(pid)))
    with pytest.raises(EmulatorError, match="No such file"):
        Emulator.at(Path(directory)).control("now")
    for path in sorted(Path(directory).rglob("*"), reverse=True):
        path.unlink() if not path.is_dir() else path.rmdir()
    Path(directory).rmdir()


def test_a_directory_in_use_and_a_wrong_order_are_refused(lsf: Emulator) -> None:
    with pytest.raises(EmulatorError, match="is there already"):
        Emulator(hosts=1, directory=lsf.directory).up()
    with pytest.raises(EmulatorError, match="time is real"):
        lsf.move(5)
    with pytest.raises(EmulatorError, match="no action 'x'"):
        lsf.control("x")
    with pytest.raises(EmulatorError, match="Too many processors requested"):
        lsf.main_job(hosts=3, seconds=1)


def test_a_host_that_fails_takes_its_jobs_with_it(lsf: Emulator) -> None:
    lsf.run("bsub", "-n", "1", "-m", "h2", "-rn", "-J", "lost", "sleep", "1000", check=True)
    lsf.close_host("h2", Closed.UNAVAILABLE)
    until(lambda: lsf.jobs()[-1]["state"] == "EXIT")
    assert (lsf.jobs()[-1]["code"], lsf.jobs()[-1]["why"]) == (137, "TERM_EXTERNAL_SIGNAL")
    lsf.open_host("h2")
    assert lsf.run("bhosts", "-noheader", "-o", "status", "h2").stdout.split() == ["ok"]


def test_virtual_time_passes_only_when_it_is_moved() -> None:
    with Emulator(site=sites.summit(), virtual=1_600_000_000.0) as lsf:
        lsf.main_job(4608, seconds=3600)
        lsf.main_job(4000, seconds=60)
        assert lsf.move(5) == 1_600_000_005
        assert [job["state"] for job in lsf.jobs()] == ["RUN", "PEND"]
        assert lsf.run("bslots", "-Rselect[CN]").stdout == "No backfill window exists at this time\n"
        lsf.move(3600 + 5)
        assert [job["state"] for job in lsf.jobs()] == ["DONE", "RUN"]
        found = json.loads(lsf.run("bhosts", "-json", "-o", "host_name run", "-R", "select[CN]").stdout)
        assert found["HOSTS"] == 4608 and sum(int(row["RUN"]) for row in found["RECORDS"]) == 4000 * 42


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts jobs of other users")
def test_a_job_runs_as_the_user_who_submits_it(lsf: Emulator, tmp_path: Path) -> None:
    nobody = {"user": 65534, "group": 65534}
    said = lsf.run("bsub", "-J", "theirs", "sleep", "1000", **nobody)
    assert said.returncode == 0, said.stderr
    job = lsf.jobs()[-1]
    assert job["user"] == "nobody" and Path(f"/proc/{job['pid']}").stat().st_uid == 65534
    lsf.run("bsub", "-J", "ours", "sleep", "1000", check=True)
    assert "permission denied" in lsf.run("bkill", str(lsf.jobs()[-1]["id"]), **nobody).stderr
    assert lsf.run("bkill", str(job["id"]), **nobody).returncode == 0
