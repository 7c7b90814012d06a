"""Snapshots that an agent writes to the folder that a spec names, in which others may write, too."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from bftrainer.agent.files import checkpoints
from bftrainer.agent.files.checkpoints import Writing
from bftrainer.elastic.state.checkpoint import Checkpoints
from bftrainer.files import is_among


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_trainers_own_folder_that_another_user_has_exchanged_gets_no_checkpoint(tmp_path: Path) -> None:
    """Who owns a folder above it can take it away, and would read the weights."""
    own = tmp_path / ".bftrainer" / "1-a-m"
    folder = own / "checkpoints"
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    assert is_among(str(folder), str(own)) and is_among(str(own.parent / "study-2-m" / "0"), str(own))
    assert not is_among(str(tmp_path / "chosen"), str(own)) and not is_among(str(folder), "")
    path, memory = folder / "g00000002-s000000000007.pt", os.memfd_create("snapshot")
    try:
        os.write(memory, b"state")
        with pytest.raises(PermissionError, match="belongs to another user"):
            Writing(memory, len(b"state"), path, lambda: math.inf, own=True).write()
    finally:
        os.close(memory)
    workers = Checkpoints(str(folder), str(own))
    assert not workers.save({"format": 1, "position": {"step": 7}, "parts": {}}, 1)
    assert "belongs to another user" in workers.error
    assert not list(folder.iterdir())


@pytest.mark.parametrize("written", [4, 6])
def test_a_snapshot_of_which_half_is_written_does_not_give_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    monkeypatch.setattr(checkpoints, "CHUNK", 1)
    memory, found = os.memfd_create("snapshot"), list[bool]()

    def goes_on() -> float:
        if writing._done == written:
            found.append(writing.gives_way(10, math.inf))
        return math.inf

    writing = Writing(memory, 10, tmp_path / "g00000001-s000000000007.pt", goes_on)
    try:
        os.write(memory, bytes(10))
        assert writing.write() and found == [written < 5]
    finally:
        os.close(memory)
