"""Sweeps with real processes: killed, interrupted, crashing workers, and over MPI."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from bftrainer.traces.synthetic import onoff
from tests.support.processes import children, until_ended
from tests.support.waiting import LONG_S, until

BFTRAINER = [sys.executable, "-m", "bftrainer"]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
CURVES = "model,nodes,images_per_s\nm,1,10\nm,16,120\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six runs of about a second."""
    since: dict[str, float] = {}
    lines = ["idle_start,idle_end,node"]
    for change in takewhile(lambda change: change.time < 300, onoff.changes(60, seed=1)):
        lines += [f"{since.pop(node)},{change.time},{node}" for node in change.left]
        since |= dict.fromkeys(change.joined, change.time)
    lines += [f"{start},,{node}" for node, start in since.items()]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    jobs = [f"j{i},2,1,1,16,{10**9},1970-01-01,m" for i in range(40)]
    (tmp_path / "jobs.csv").write_text("\n".join(["job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model", *jobs]))
    (tmp_path / "curves.csv").write_text(CURVES)
    (tmp_path / "grid.yaml").write_text(
        "base: {log: log.csv, workload: jobs.csv, curves: curves.csv, allocator: knapsack, max_parallel: 9}\n"
        "grid: {cost_scale: [0, 1, 2], t_fwd_s: [10, 60]}\n"
    )
    return tmp_path


def sweep(folder: Path, *options: str) -> list[str]:
    return [*BFTRAINER, "sweep", str(folder / "grid.yaml"), *options]


def rows(folder: Path) -> dict[str, tuple[str, int | None, int]]:
    """The rows so far: error, rank and process by name."""
    path = folder / "grid" / "results.sqlite"
    if not path.exists():
        return {}
    with sqlite3.connect(path, timeout=60) as db:
        try:
            found = db.execute("SELECT name, error, rank, pid FROM runs").fetchall()
        except sqlite3.OperationalError:  # no table or no row yet
            return {}
    return {name: (error, rank, pid) for name, error, rank, pid in found}


def until_first_row(folder: Path, running: subprocess.Popen[str]) -> dict[str, tuple[str, int | None, int]]:
    def there() -> bool:
        assert running.poll() is None, running.communicate()
        return bool(rows(folder))

    until(there, "the first row", every_s=0.02)
    return rows(folder)


def finish(folder: Path, *options: str) -> list[dict[str, object]]:
    done = subprocess.run(
        sweep(folder, "--json", *options), capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_a_killed_sweep_leaves_no_process_and_goes_on_where_it_was(folder: Path) -> None:
    running = subprocess.Popen(sweep(folder, "--jobs", "1"), text=True, stderr=subprocess.PIPE)
    before = until_first_row(folder, running)
    workers = children(running.pid)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    before = rows(folder)
    assert 0 < len(before) < 6
    until_ended(workers)
    found = finish(folder, "--jobs", "2")
    after = rows(folder)
    assert len(found) == len(after) == 6
    assert {name: after[name] for name in before} == before
    assert len({row["pid"] for row in found if row["name"] not in before} & set(workers)) == 0
    with (folder / "grid" / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == [row["name"] for row in found]


def test_an_interrupted_sweep_says_how_far_it_is(folder: Path) -> None:
    grid = folder / "grid.yaml"
    grid.write_text(grid.read_text().replace("[10, 60]", str(list(range(10, 60)))))  # far from done
    running = subprocess.Popen(
        sweep(folder, "--jobs", "2"), text=True, stderr=subprocess.PIPE, start_new_session=True
    )
    until_first_row(folder, running)
    workers = children(running.pid)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=LONG_S)
    assert running.returncode == 130
    n = len(rows(folder))
    assert said.splitlines() == [
        f"150 runs in {grid}",
        f"interrupted: {n} of 150 runs are done; repeat the command to go on",
    ]
    assert 0 < n < 150
    until_ended(workers)


def test_a_worker_that_is_killed_costs_no_run(folder: Path) -> None:
    running = subprocess.Popen(
        sweep(folder, "--jobs", "1", "--json"), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    first, *_ = until_first_row(folder, running).values()
    os.kill(first[2], signal.SIGKILL)
    out, said = running.communicate(timeout=250)
    assert running.returncode == 0, said
    found = json.loads(out)
    assert [row["error"] for row in found] == [None] * 6
    assert len({row["pid"] for row in found}) > 1


@pytest.mark.nightly  # the same runs as by processes of one machine
@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python; install the extra 'dev'")
def test_three_mpi_processes_share_the_work(folder: Path) -> None:
    """The first one hands out, the other two replay; a run that fails fails alone."""
    pytest.importorskip("mpi4py")
    (folder / "grid.yaml").write_text((folder / "grid.yaml").read_text() + "runs: [{nodes: 999}]\n")
    done = subprocess.run(
        [str(MPIEXEC), "-n", "3", *sweep(folder, "--executor", "mpi", "--json", "--record")],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 1, done.stderr
    assert "error: 1 of 7 runs failed" in done.stderr
    found = json.loads(done.stdout)
    assert [row["error"] is None for row in found] == [True] * 6 + [False]
    assert {row["rank"] for row in found} == {1, 2}
    assert len({row["pid"] for row in found}) == 2
    assert len(list((folder / "grid" / "records").iterdir())) == 6
    alone = finish_without_bad(folder)
    for one, other in zip(found, alone, strict=False):
        assert one["efficiency_u"] == other["efficiency_u"]


def finish_without_bad(folder: Path) -> list[dict[str, object]]:
    """The same runs by one process, into another folder."""
    text = (folder / "grid.yaml").read_text()
    (folder / "grid.yaml").write_text(text.replace("runs: [{nodes: 999}]\n", ""))
    return finish(folder, "--jobs", "1", "--out", str(folder / "alone"))


def test_mpi_with_one_process_says_how_to_start_more(folder: Path) -> None:
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    done = subprocess.run(
        sweep(folder, "--executor", "mpi"), capture_output=True, text=True, check=False, timeout=LONG_S
    )
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith(
        "error: MPI has 1 process. Start 2 or more: mpiexec -n 3 bftrainer sweep ... --executor mpi"
    )
