"""Real outputs of LSF's commands, where this machine has them: they are read in place and are no part of the
project. LSF_SAMPLES names their folder; without it, that is one beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).absolute().parents[3] / "shared" / "samples" / "lsf"
FOLDER = Path(os.environ.get("LSF_SAMPLES", BESIDE))


def sample(name: str) -> str:
    """The text of a sample; without the folder the test is skipped."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"no real output {name}: set LSF_SAMPLES to the folder that has them")
    return path.read_text(encoding="utf-8")
