"""The demonstration on Slurm, interrupted at its worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from remains import mentioned

ROOT = Path(__file__).parent.parent.parent


def test_ctrl_c_leaves_nothing_running(place: Path) -> None:
    place.mkdir()
    place.chmod(0o755)
    demo = subprocess.Popen(
        [sys.executable, "-m", "slurm.testbed", "demo", "--nodes", "2", str(ROOT / "trainers/digits.yaml")],
        env={**os.environ, "TMPDIR": str(place)},  # which tells everything that it starts
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    seen = next(line for line in demo.stdout if "n1=(digits)" in line)  # pilots are up, workers start
    assert "main jobs: 0 submitted" in seen
    assert mentioned(place)
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=90)
    assert demo.returncode == 1
    assert not mentioned(place)
    assert not list(place.iterdir())
