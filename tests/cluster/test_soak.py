"""A short soak; `make soak` runs a long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_S = 780


@pytest.mark.timeout(LONGEST_S + 60)
def test_everything_fails_and_every_trainer_finishes() -> None:
    seconds = os.environ.get("SOAK_SECONDS", "40")
    command = [sys.executable, "-m", "tests.cluster.soak", "--seconds", seconds, "--nodes", "6"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    print(done.stdout)
