"""The benchmark for GPUs runs from end to end on the CPU; without GPUs it says what it needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.site import ROOT

LONG_S = 900.0
PARTS = ("faults", "rejoins", "vacate", "throughput", "snapshots", "stream", "changes", "forks")


def benchmark(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *words]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=LONG_S, check=False, cwd=ROOT
    )


def test_it_says_what_it_needs() -> None:
    done = benchmark()
    assert done.returncode == 1
    assert "an NVIDIA GPU and a PyTorch for CUDA are needed; here: PyTorch" in done.stderr
    assert "--cpu" in done.stderr


@pytest.mark.nightly
def test_every_part_runs_on_the_cpu() -> None:
    done = benchmark("--cpu", "--repeat", "1", "--seconds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert list(dict.fromkeys(line[0] for line in lines)) == list(PARTS)
    assert [line[1] for line in lines if line[0] == "changes"] == ["join", "SIGKILL", "leave", "join,"]
    for kind in ("plain", "ddp", "amp"):
        changes = [line[2] for line in lines if line[:2] == ["faults", kind]]
        assert changes == ["join", "SIGKILL", "SIGSTOP", "rank", "leave", "join,", "taken", "after"]
    assert "never" not in done.stdout
    assert not any("weights" in line and "missed" in line for line in lines)
