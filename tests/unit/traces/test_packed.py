"""Logs however they are packed and encoded, and files that are no logs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from bftrainer.traces import packed
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import load

TEXT = "idle_start,idle_end,node\n0,10,n1\n5,20,n2\n"
FOUND = [Interval(0.0, 10.0, "n1"), Interval(5.0, 20.0, "n2")]


def zipped(*names: str, content: str = TEXT) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), "" if name.endswith("/") else content)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("log.csv")
        info.size = len(TEXT)
        archive.addfile(info, io.BytesIO(TEXT.encode()))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        gzip.compress(TEXT.encode("utf-8-sig")),
        lzma.compress(TEXT.encode("utf-16")),
        bz2.compress(TEXT.encode()),
        zipped("log.csv"),
        zipped("folder/", "folder/log.csv", "__MACOSX/._log.csv"),
        zipped("log.csv", content="\ufeff" + TEXT),
    ],
)
def test_the_same_log_however_it_is_written(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    log = load(tmp_path / "log")
    assert (log.format, log.broken, sorted(log.intervals)) == ("intervals", 0, FOUND)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zipped("a.csv", "b.csv"), "a zip archive of 2 files. Take one of them, unpacked"),
        (zipped("xl/workbook.xml", "other.xml"), "an Excel file. Take it as CSV"),
        (zipped("log.csv")[:60], "a zip archive that cannot be read"),
        (tarred(), "a tar archive. Take the file in it"),
        (gzip.compress(tarred()), "a tar archive. Take the file in it"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 50, "packed by zstd"),
        (b"PAR1" + b"x" * 50, "a Parquet file"),
        (b"MZ\x90\x00\x03" + b"\x80" * 50, "no text"),
        (b'{"meta": {"plugins": {}}, "jobs": []}\n', "JSON. Take what sacct --parsable2 prints"),
        (
            b"JobID           JobName  Partition\n------------ ---------- ----\n",
            "Take what sacct --parsable2 prints",
        ),
        (b"             JOBID PARTITION     NAME     USER ST\n 1 batch a b R\n", "jobs of one moment"),
        (b"<!DOCTYPE html>\n", "HTML"),
    ],
)
def test_what_is_no_log_is_told_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LogError, match=said) as error:
        load(tmp_path / "log")
    assert str(error.value).startswith(f"{tmp_path / 'log'}: ")


@pytest.mark.parametrize("content", [gzip.compress(TEXT.encode()), bz2.compress(TEXT.encode()), zipped("a")])
def test_what_is_unpacked_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(packed, "MOST_UNPACKED", 40)
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LogError, match="more than 40"):
        load(tmp_path / "log")


def test_a_zip_whose_content_is_damaged_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped("log.csv", content=TEXT * 2000))
    content[100] ^= 255
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LogError):
        load(tmp_path / "log")
