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


def test_a_folder_that_is_exchanged_meanwhile_leads_to_no_other_folder(tmp_path: Path) -> None:
    folder, private = tmp_path / "checkpoints", tmp_path / "private"
    private.mkdir()
    names = [f"g00000001-s{step:012}.pt" for step in range(3)]
    for name in names:
        (private / name).write_text("mine")

    def exchange() -> float:
        if not folder.is_symlink():
            folder.rename(tmp_path / "before")
            folder.symlink_to(private)
        return math.inf

    memory = os.memfd_create("snapshot")
    try:
        os.write(memory, b"state")
        assert Writing(memory, len(b"state"), folder / "g00000002-s000000000007.pt", exchange).write()
    finally:
        os.close(memory)
    assert sorted(path.name for path in private.iterdir()) == names
    assert [path.name for path in (tmp_path / "before").iterdir()] == ["g00000002-s000000000007.pt"]
