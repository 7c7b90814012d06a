"""Files that a command is given and that are none, or unpack to no end: one message, in bounded memory."""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrainer.demo.session import DemoSession
from bftrainer.errors import BftrainerError
from bftrainer.replay import workload
from bftrainer.replay.calibrate import history
from bftrainer.replay.record import storage
from bftrainer.replay.sweep import grid
from bftrainer.traces import logs, packed
from bftrainer.worker_output import _files


def no_files(folder: Path) -> list[Path]:
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    return [fifo, folder, Path("/dev/zero")]


def submit(path: Path) -> None:
    DemoSession.submit(object.__new__(DemoSession), [path])


@pytest.mark.parametrize("read", [logs.load, grid.read, storage.read, submit])
def test_what_is_no_file_is_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    for path in no_files(tmp_path):
        with pytest.raises(BftrainerError, match=f"{path}: .*no(t a)? regular file"):
            read(path)


@pytest.mark.parametrize("suffix", [".csv", ".yaml"])
def test_no_workload_is_read_of_what_is_no_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"jobs{suffix}"
    os.mkfifo(path)
    curves = tmp_path / "curves.csv"
    curves.write_text("model,nodes,images_per_s\nm,1,10\n")
    with pytest.raises(BftrainerError, match=f"{path}: .*no(t a)? regular file"):
        workload.read(path, curves)


def test_what_is_no_file_is_no_history(tmp_path: Path) -> None:
    assert not any(map(history.is_history, no_files(tmp_path)))


def test_only_files_are_logs_of_workers(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n1.log")
    (tmp_path / "n2.log").symlink_to("/dev/zero")
    (tmp_path / "n3.log").touch()
    assert list(_files(tmp_path, None, os.geteuid())) == ["n3"]


@pytest.mark.parametrize("module", [gzip, lzma])
def test_a_line_without_end_is_refused_before_it_takes_memory(tmp_path: Path, module: object) -> None:
    path = tmp_path / "log"
    path.write_bytes(module.compress(b"idle_start,idle_end,node\n" + b"1" * 5 * packed.MOST_CHARACTERS))  # type: ignore[attr-defined]
    with pytest.raises(BftrainerError, match=f"{path}: line 2 has more than 4,000,000 characters"):
        logs.load(path)
    jobs, curves = tmp_path / "jobs.csv", tmp_path / "curves.csv"
    jobs.write_bytes(path.read_bytes())
    curves.write_text("model,nodes,images_per_s\nm,1,10\n")
    with pytest.raises(BftrainerError):
        workload.read(jobs, curves)


def test_a_table_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "MOST_ROWS", 2)
    path = tmp_path / "curves.csv"
    path.write_text("model,nodes,images_per_s\n" + "m,1,10\n" * 3)
    with pytest.raises(BftrainerError, match=r"curves\.csv:4: 3 rows or more, and at most 2"):
        workload.rows(path, workload.CURVE_COLUMNS, "a table of curves")


def test_a_record_that_unpacks_to_no_end_or_is_deep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json.gz"
    path.write_bytes(gzip.compress(b"[" * 200_000))
    with pytest.raises(BftrainerError, match="no record of a replay"):
        storage.read(path)
    monkeypatch.setattr(storage, "MOST_BYTES", 1000)
    with pytest.raises(BftrainerError, match="unpacked more than 1,000 bytes"):
        storage.read(path)


def test_a_description_that_is_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("[" * 100_000)
    with pytest.raises(BftrainerError, match="nested too deeply"):
        grid.read(path)
