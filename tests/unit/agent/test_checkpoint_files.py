"""Snapshots that an agent writes to the folder that a spec names, in which others may write, too."""

from __future__ import annotations

import math
import os
from pathlib import Path

from bftrainer.agent.files.checkpoints import Writing


def test_a_link_of_anothers_leads_to_no_other_file(tmp_path: Path) -> None:
    other, path = tmp_path / "notes", tmp_path / "g00000001-s000000000007.pt"
    other.write_text("mine")
    path.with_name(f".{path.name}.{os.getpid()}").symlink_to(other)
    memory = os.memfd_create("snapshot")
    try:
        os.write(memory, b"state")
        assert Writing(memory, len(b"state"), path, lambda: math.inf).write()
    finally:
        os.close(memory)
    assert path.read_bytes() == b"state"
    assert not path.is_symlink()
    assert other.read_text() == "mine"
