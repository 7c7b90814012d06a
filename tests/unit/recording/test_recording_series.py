"""Files of a series: rotated, packed, whole lines only, whatever the disk does."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.recording import series as series_module
from bftrainer.recording.series import DAY_S, Series
from bftrainer.traces import recorded

NOW = 1763868000.0
HEADER = '{"bftrainer_record":1}\n'


def opened(folder: Path, *, rotate_mb: float = 1.0, most_mb: float = 10.0) -> Series:
    return Series(folder, rotate_mb=rotate_mb, most_mb=most_mb)


def texts(folder: Path) -> list[str]:
    return [
        gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for path in recorded.files(folder)
    ]


def test_full_and_old_files_are_packed(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    series = opened(folder, rotate_mb=0.0001)
    assert series.due(NOW)
    series.begin(NOW, HEADER)
    assert not series.due(NOW + DAY_S - 1) and series.due(NOW + DAY_S)
    series.append("x" * 100 + "\n")
    assert series.due(NOW + 10)
    series.begin(NOW + 10, HEADER)
    assert [path.suffix for path in recorded.files(folder)] == [".gz", ".jsonl"]
    series.append("y\n")
    series.close()
    assert [path.suffix for path in recorded.files(folder)] == [".gz", ".gz"]
    assert texts(folder) == [HEADER + "x" * 100 + "\n", HEADER + "y\n"]
    assert len(list(folder.iterdir())) == 2


def test_a_disk_that_fills_up_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = opened(tmp_path)
    series.begin(NOW, HEADER)
    write = os.write
    monkeypatch.setattr(series_module.os, "write", lambda file, data: write(file, data[:5]))
    with pytest.raises(OSError, match="No space left"):
        series.append("abcdef\n")
    monkeypatch.undo()
    series.append("g\n")
    assert texts(tmp_path) == [HEADER + "g\n"]


def test_a_file_whose_header_cannot_be_written_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    series = opened(tmp_path)
    monkeypatch.setattr(series_module.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        series.begin(NOW, HEADER)
    monkeypatch.undo()
    assert series.due(NOW) and not list(tmp_path.iterdir())
    series.begin(NOW, HEADER)
    series.append("x\n")
    assert texts(tmp_path) == [HEADER + "x\n"]


def test_what_a_killed_recorder_left_is_packed_and_read(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.begin(NOW, HEADER)
    first.append("half a li")
    os.close(first._lock)  # as the kernel does
    second = opened(tmp_path)
    assert [path.suffix for path in recorded.files(tmp_path)] == [".gz"]
    second.begin(NOW + 10, HEADER)
    assert texts(tmp_path) == [HEADER + "half a li", HEADER]


def test_two_recorders_do_not_write_to_one_folder(tmp_path: Path) -> None:
    series = opened(tmp_path)
    with pytest.raises(BftrainerError, match="another recorder writes"):
        opened(tmp_path)
    series.close()
    opened(tmp_path).close()


def test_a_series_is_full_by_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "record-20200101T000000Z.jsonl.gz").write_bytes(b"x" * 5000)
    (tmp_path / "other").write_bytes(b"x" * 50_000)
    series = opened(tmp_path, most_mb=0.006)
    series.begin(NOW, HEADER)
    assert not series.full
    series.append("x" * 1000)
    assert series.full


def test_a_place_that_is_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BftrainerError, match="Name another place to write to"):
        opened(tmp_path / "file")


def test_only_files_of_ours_are_packed_where_others_write(tmp_path: Path) -> None:
    """Packed files can be read by all: a link, or another user's file, is none of the series."""
    folder, private = tmp_path / "shared", tmp_path / "private"
    folder.mkdir(mode=0o777)
    private.write_text("secret\n")
    private.chmod(0o600)
    link, pipe = (folder / f"record-2020010{day}T000000Z.jsonl" for day in (1, 2))
    link.symlink_to(private)
    os.mkfifo(pipe)
    opened(folder).close()
    assert sorted(folder.iterdir()) == [link, pipe], "nothing was packed, and no pipe waited for"
