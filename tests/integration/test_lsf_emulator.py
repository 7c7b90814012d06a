"""The emulated LSF with real processes, through its commands."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsf.emulator import Emulator, sites
from lsf.emulator.sessions import below, members


@pytest.fixture
def lsf() -> Iterator[Emulator]:
    with Emulator(hosts=3) as found:
        yield found


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def job(lsf: Emulator, number: int) -> dict[str, str]:
    """A job as bjobs shows it in JSON."""
    fields = "jobid stat queue exec_host exit_code pids"
    shown = lsf.run("bjobs", "-a", "-o", fields, "-json", str(number), check=True).stdout
    found: dict[str, str] = json.loads(shown)["RECORDS"][0]
    return found


def test_a_real_process_is_submitted_seen_and_killed(lsf: Emulator, tmp_path: Path) -> None:
    at_once = f"env > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/env"  # whole, once it is there
    script = f"#!/bin/sh\n{at_once}\necho began\nsleep 1000 &\nwait\n"
    said = lsf.run("bsub", "-nnodes", "1", "-W", "10", "-o", f"{tmp_path}/out.%J", input=script)
    assert said.stdout == "Job <101> is submitted to default queue <batch>.\n"
    until((tmp_path / "env").exists)
    seen = job(lsf, 101)
    pid = int(seen["PIDS"])
    assert (seen["STAT"], seen["EXEC_HOST"]) == ("RUN", ":".join(["h1"] * 42))
    assert os.getsid(pid) == pid == os.getpgid(pid), "it has a session and a process group of its own"
    until(lambda: len(members(pid)) == 2)
    assert lsf.run("bhosts", "-noheader", "-o", "host_name status run", "h1").stdout.split() == [
        *("h1", "closed_Full", "42")
    ]
    assert lsf.run("bslots").stdout.splitlines()[1].split() == ["84", "UNLIMITED"]
    environment = dict(
        line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line
    )
    assert environment["LSB_JOBID"] == "101" and environment["LSB_MCPU_HOSTS"] == "h1 42"
    assert lsf.run("bkill", "101").stdout == "Job <101> is being terminated\n"
    until(lambda: job(lsf, 101)["STAT"] == "EXIT")
    assert job(lsf, 101)["EXIT_CODE"] in ("130", "143"), "SIGINT or, as shells ignore that for &, SIGTERM"
    assert not members(pid), "nothing of it is left"
    assert (tmp_path / "out.101").read_text() == "began\n"


def test_signals_reach_every_process_of_a_job_and_no_other(lsf: Emulator, tmp_path: Path) -> None:
    script = f"""#!/bin/sh
trap 'echo term >> {tmp_path}/heard; exit 3' TERM
touch {tmp_path}/on
while :; do sleep 0.05; done
"""
    lsf.run("bsub", "-n", "1", input=script, check=True)
    lsf.run("bsub", "-n", "1", "sleep", "1000", check=True)
    until((tmp_path / "on").exists)
    assert lsf.run("bkill", "-s", "TERM", "101").stdout == "Job <101> is being signaled\n"
    until(lambda: job(lsf, 101)["EXIT_CODE"] == "3")
    assert (tmp_path / "heard").read_text() == "term\n"
    assert job(lsf, 102)["STAT"] == "RUN"


def test_a_stopped_job_stands_still_and_goes_on(lsf: Emulator) -> None:
    lsf.run("bsub", "-n", "1", "sleep", "1000", check=True)
    pid = int(job(lsf, 101)["PIDS"])

    def state() -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    assert lsf.run("bstop", "101").stdout == "Job <101> is being stopped\n"
    until(lambda: state() == "T")
    assert job(lsf, 101)["STAT"] == "USUSP"
    assert lsf.run("bresume", "101").stdout == "Job <101> is being resumed\n"
    until(lambda: state() == "S" and job(lsf, 101)["STAT"] == "RUN")


def test_a_pilot_makes_room_for_a_main_job_and_waits_with_its_id(lsf: Emulator) -> None:
    lsf.run("bsub", "-q", "killable", "-nnodes", "1", "-W", "10", "sleep", "1000", check=True)
    before = int(job(lsf, 101)["PIDS"])
    main = lsf.main_job(hosts=3, seconds=1.0)
    until(lambda: job(lsf, main)["STAT"] == "RUN")
    assert job(lsf, 101)["STAT"] == "PEND" and not members(before)
    until(lambda: job(lsf, 101)["STAT"] == "RUN")
    assert int(job(lsf, 101)["PIDS"]) != before


def test_tasks_start_on_the_hosts_of_their_job_and_hear_its_signals(tmp_path: Path) -> None:
    show = 'echo "$LSF_EMULATOR_HOST $PMIX_RANK"'
    script = f"""#!/bin/sh
set -- $LSB_MCPU_HOSTS
echo "$1 $3 $5" > {tmp_path}/hosts
jsrun -n4 -r2 -a1 -c21 -g3 -bnone sh -c '{show}' | sort > {tmp_path}/tasks
blaunch $5 sh -c '{show}' > {tmp_path}/one
blaunch elsewhere true; echo $? > {tmp_path}/refused
exec jsrun -n1 -r1 sh -c 'trap "echo heard > {tmp_path}/signal; exit 0" TERM
echo $LSF_EMULATOR_HOST > {tmp_path}/on; while :; do sleep 0.05; done'
"""
    with Emulator(site=sites.small(2, launch=1)) as lsf:
        lsf.run("bsub", "-nnodes", "2", "-W", "5", input=script, check=True)
        until((tmp_path / "on").exists)
        lsf.run("bkill", "-s", "TERM", "101", check=True)
        until(lambda: job(lsf, 101)["STAT"] == "DONE")
    read = {path.name: path.read_text().split("\n")[:-1] for path in tmp_path.iterdir()}
    assert read["hosts"] == ["batch1 h1 h2"]
    assert read["tasks"] == ["h1 0", "h1 1", "h2 2", "h2 3"]
    assert [read[name] for name in ("one", "refused", "on", "signal")] == [
        ["h2 "],
        ["255"],
        ["h1"],
        ["heard"],
    ]


def test_the_accounting_and_the_plan_are_written_down() -> None:
    with Emulator(hosts=1, planner=True) as lsf:
        lsf.run("bsub", "-J", "a b", "-n", "1", "true", check=True)
        accounts = lsf.directory / "lsb.acct"
        until(lambda: accounts.exists() and accounts.read_text().endswith("\n"))
        record = accounts.read_text()
        assert record.startswith('"JOB_FINISH" "10.1" ') and '"a b" "true"' in record
        lsf.main_job(seconds=600)
        second = lsf.main_job(seconds=600)
        plans = json.loads((lsf.directory / "lsb.allocation.plan.json").read_text())["PLANS"]
        assert [plan["JOB_ID"] for plan in plans] == [f"emulated@{second}"]
        assert plans[0]["ALLOC"][0]["HOST"] == "h1"


def test_commands_are_found_by_a_link_to_their_folder(lsf: Emulator, tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(lsf.bin)
    for name in ("lsid", "bhosts"):
        done = subprocess.run(
            [tmp_path / "bin" / name],
            env={**lsf.env, "LSB_NTRIES": "1"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == lsf.run(name).stdout


def test_nothing_is_left_when_it_is_taken_down(tmp_path: Path) -> None:
    script = f"#!/bin/sh\nsetsid sleep 1000 &\necho $! > {tmp_path}/other\nsleep 1000\n"
    with Emulator(hosts=1) as lsf:
        lsf.run("bsub", "-n", "1", input=script, check=True)
        until(lambda: (tmp_path / "other").exists() and bool((tmp_path / "other").read_text()))
        other, folder = int((tmp_path / "other").read_text()), lsf.directory
        pid = int(job(lsf, 101)["PIDS"])
    assert not folder.exists() and not members(pid)
    assert not below(other), "not even what had left the job's session"
