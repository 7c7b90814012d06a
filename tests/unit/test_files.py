"""Files that others name: nothing is waited for, and nothing read without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer.files import open_regular, read_text


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to("/dev/zero")
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for path in (fifo, tmp_path, tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened, "none is left open"
    (tmp_path / "file").write_text("a")
    (tmp_path / "to").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "to") as file:
        assert file.read() == b"a"


def test_no_more_is_read_than_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a" * 2000)
    assert read_text(path, 2) == "a" * 2000
    with pytest.raises(OSError, match="2000 bytes; at most 1 kB are read"):
        read_text(path, 1)
