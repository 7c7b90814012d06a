"""Random kills for a minute or two; the soak of the cluster tests has a shorter one for every commit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.site import ROOT

LONGEST_S = 840


@pytest.mark.nightly
def test_trainers_finish_while_workers_agents_and_the_daemon_are_killed() -> None:
    seconds = os.environ.get("CHAOS_SECONDS", "120")
    command = [sys.executable, "-m", "tests.support.chaos", "--seconds", seconds]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    print(done.stdout)
