"""Commands on an installation whose solver lacks a library: told on standard error, or not started at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = {"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}


LOG = "idle_start,idle_end,node\n0,1000,a\n0,600,b\n100,500,c\n200,600,d\n300,1000,e\n400,900,f\n"
JOBS = "job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model\n" + "".join(
    f"j{i},20,10,{i},4,20000,1970-01-01 00:00:0{i},m\n" for i in range(1, 4)
)
CURVES = "model,nodes,images_per_s\nm,1,10\nm,4,36\n"
GRID = "base: {log: log.csv, workload: jobs.csv, curves: curves.csv}\ngrid: {allocator: [knapsack, %s]}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Nodes that come and go, and trainers."""
    for name, text in (("log.csv", LOG), ("jobs.csv", JOBS), ("curves.csv", CURVES)):
        (tmp_path / name).write_text(text)
    return tmp_path


def without_scipy(folder: Path) -> dict[str, str]:
    """An environment in which no Python process can import SciPy."""
    broken = folder / "broken"
    broken.mkdir()
    (broken / "scipy.py").write_text("raise ImportError('there is no SciPy here')\n")
    return os.environ | ELSEWHERE | {"PYTHONPATH": str(broken)}


def bftrainer(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line where neither it nor a process that it starts can import SciPy."""
    return subprocess.run(
        [sys.executable, "-m", "bftrainer", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=without_scipy(folder),
    )


def replay(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    files = ("--workload", folder / "jobs.csv", "--curves", folder / "curves.csv")
    return bftrainer(folder, "replay", folder / "log.csv", *files, "--json", *options)


def test_replay_refuses_the_milp_with_the_remedy(folder: Path) -> None:
    done = replay(folder, "--allocator", "milp")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: solver highs does not work here: there is no SciPy here;")
    assert "pip install highspy scipy" in done.stderr


def test_replay_counts_fallbacks_and_warns_of_them(folder: Path) -> None:
    done = replay(folder, "--departure-groups", "joined")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["fallbacks"] > 0
    assert figures["decided_by"] == {"knapsack": figures["decisions"]}
    assert "decisions were made without the MILP that was asked for: solver highs failed" in done.stderr


def test_replay_says_nothing_where_the_milp_is_not_needed(folder: Path) -> None:
    done = replay(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["fallbacks"] == 0


def test_sweep_refuses_the_milp_before_anything_runs(folder: Path) -> None:
    (folder / "grid.yaml").write_text(GRID % "milp")
    done = bftrainer(folder, "sweep", folder / "grid.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "\nerror: solver highs does not work here" in done.stderr
    assert not (folder / "grid").exists()


def test_sweep_warns_of_runs_with_fallbacks(folder: Path) -> None:
    (folder / "grid.yaml").write_text(GRID % "auto" + "runs: [{allocator: auto, departure_groups: joined}]\n")
    done = bftrainer(folder, "sweep", folder / "grid.yaml", "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert "warning: in 1 of 3 runs, decisions were made without the MILP" in done.stderr


def test_the_daemon_refuses_the_milp_before_anything_is_made(tmp_path: Path) -> None:
    done = bftrainer(tmp_path, "daemon", "--allocator", "milp", "--state-dir", tmp_path / "state")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: solver highs does not work here" in done.stderr
    assert "pip install highspy scipy" in done.stderr
    assert not (tmp_path / "state").exists()


def test_the_daemon_with_auto_starts_and_warns(tmp_path: Path) -> None:
    options = ("--scheduler", "local", "--nodes", "1", "--state-dir", str(tmp_path / "state"))
    daemon = subprocess.Popen(
        [sys.executable, "-m", "bftrainer", "daemon", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=without_scipy(tmp_path) | {"BFTRAINER_LOG_FORMAT": "logfmt"},
    )
    assert daemon.stderr is not None
    with daemon:
        said = []
        for line in daemon.stderr:
            said.append(line)
            if "event=ready" in line:
                daemon.terminate()
    (warning,) = [line for line in said if "event=solver_failed" in line]
    assert warning.startswith("<4>")
    assert "pip install highspy scipy" in warning
