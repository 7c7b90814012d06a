"""The replay of what a real demonstration recorded predicts what it processed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bftrainer.replay.calibrate import history
from bftrainer.replay.calibrate.compare import HistoryComparison, compare
from bftrainer.settings.sources import PREFIX

ROOT = Path(__file__).resolve().parents[2]
ENOUGH = 300_000
"""Samples: fewer would be little to predict."""


def test_a_replay_predicts_the_samples_of_the_demonstration_that_it_replays(tmp_path: Path) -> None:
    for seconds in (60, 240):  # cut off before the trainers have done their work; a slow machine takes longer
        comparison = demonstrate(seconds, tmp_path / f"kept-{seconds}")
        if comparison.total.recorded > ENOUGH:
            break
    said = [(line.name, line.recorded, line.predicted) for line in comparison.trainers]
    assert comparison.total.recorded > ENOUGH, said
    assert comparison.total.difference is not None
    assert abs(comparison.total.difference) < 0.05, said
    for line in comparison.trainers:
        assert abs(line.predicted - line.recorded) < 0.05 * comparison.total.recorded, said


def demonstrate(seconds: int, kept: Path) -> HistoryComparison:
    """`make demo`, and what a replay of its record predicts."""
    done = subprocess.run(
        [
            *("make", "--old-file=install", f"VENV={sys.prefix}", "demo"),
            *(f"SECONDS={seconds}", f"KEEP={kept}"),
        ],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith((PREFIX, "MAKE"))},
        timeout=seconds + 300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return compare(history.load(kept))
