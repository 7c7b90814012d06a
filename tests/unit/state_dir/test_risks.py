"""What a daemon warns of when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.state_dir import filesystem
from bftrainer.state_dir.risks import risks


@pytest.mark.parametrize(("kind", "warned"), [("ext4", False), ("tmpfs", True), ("ramfs", True)])
def test_a_folder_in_memory_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, warned: bool
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"30 22 0:40 / {tmp_path} rw - {kind} none rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    said = risks(tmp_path, 1000, site=True)
    assert [f"in memory ({kind}" in one and "on a disk" in one for one in said] == [True] * warned


def test_a_site_as_root_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    (said,) = risks(tmp_path, 0, site=True)
    assert "run it as an account of its own" in said
    assert risks(tmp_path, 0, site=False) == risks(tmp_path, 1000, site=True) == []
