"""Opens logs as text however they are packed and encoded, or says what a file is that is no text."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from bftrainer.files import open_regular
from bftrainer.traces.intervals import LogError

MOST_CHARACTERS = 4_000_000
"""A line has no more, such as one that names all nodes of a machine."""
MOST_UNPACKED = 50_000_000_000
"""No log is longer, in characters: what a small packed file can hold has no end otherwise."""
LOOKED_AT = 512
"""The first so many bytes tell what a file is."""
ENCODINGS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
NO_TEXT = (
    (b"\x28\xb5\x2f\xfd", "it is packed by zstd: unpack it (unzstd)"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it (7z x)"),
    (b"Rar!", "it is a RAR archive: unpack it (unrar x)"),
    (b"\x1f\x9d", "it is packed by compress: unpack it (uncompress)"),
    (b"\x04\x22\x4d\x18", "it is packed by lz4: unpack it (unlz4)"),
    (b"PAR1", "it is a Parquet file: write it as CSV"),
    (b"SQLite format 3", "it is an SQLite database: export its jobs as CSV"),
    (b"\x89HDF", "it is an HDF5 file: write it as CSV"),
    (b"%PDF", "it is a PDF"),
    (b"\xd0\xcf\x11\xe0", "it is a file of an old Office: save it as CSV"),
)
"""How files begin that are no text, and what they are."""


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a regular file as text, plain or packed."""
    with open_regular(path) as raw, unpacked(raw) as text:
        yield text


def lines_of(text: TextIO) -> Iterator[str]:
    """The lines of a text; a packed file of a few kB may have one of any length, and any number of them.

    Raises:
        LogError: one has more than `MOST_CHARACTERS`, or all together have more than `MOST_UNPACKED`.
    """
    all_ = 0
    for number, line in enumerate(iter(partial(text.readline, MOST_CHARACTERS + 1), ""), start=1):
        if len(line) > MOST_CHARACTERS:
            raise LogError(f"line {number} has more than {MOST_CHARACTERS:,} characters: this is no log")
        all_ += len(line)
        if all_ > MOST_UNPACKED:
            raise LogError(f"line {number}: unpacked more than {MOST_UNPACKED:,} characters: this is no log")
        yield line


def unpacked(raw: BinaryIO, *, errors: str = "strict") -> TextIO:
    """The text of an open file: plain, gzip, xz, bzip2, or the only file of a zip; in UTF-8 or UTF-16, with
    or without a mark at its begin. `errors` as for the built-in `open`.

    Raises:
        LogError: it is no text.
    """
    file = _plain(raw)
    head = file.peek(LOOKED_AT)[:LOOKED_AT]
    for magic, what in NO_TEXT:
        if head.startswith(magic):
            raise LogError(what)
    if head[257:262] == b"ustar":
        raise LogError("it is a tar archive: unpack it (tar xf) and name the file in it")
    encoding = next((name for mark, name in ENCODINGS if head.startswith(mark)), "") or _unmarked(head)
    return TextIOWrapper(file, encoding=encoding, errors=errors, newline="")


def _plain(raw: BinaryIO) -> BufferedReader:
    """The bytes of an open file, unpacked."""
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("BufferedReader", gzip.open(raw))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return cast("BufferedReader", lzma.open(raw))
    if re.match(rb"BZh[1-9]", magic):
        return cast("BufferedReader", bz2.open(raw))
    if magic.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _only_one(raw)
    return cast("BufferedReader", raw)


def _only_one(raw: BinaryIO) -> BufferedReader:
    """The only file of a zip, which says itself how long that is."""
    try:
        archive = zipfile.ZipFile(raw)
        files = [each for each in archive.infolist() if not each.is_dir() and "__MACOSX" not in each.filename]
        if any(each.filename == "xl/workbook.xml" for each in files):
            raise LogError("it is an Excel file: save it as CSV")
        if len(files) != 1:
            raise LogError(f"it is a zip archive of {len(files)} files: unpack it and name one")
        if files[0].file_size > MOST_UNPACKED:
            raise LogError(f"the file in it has {files[0].file_size:,} bytes, more than {MOST_UNPACKED:,}")
        return cast("BufferedReader", archive.open(files[0]))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        # it is damaged, packed by another method, or locked
        raise LogError(
            f"the zip archive cannot be read ({error}): unpack it and name the file in it"
        ) from None


def _unmarked(head: bytes) -> str:
    """The encoding of a text without a mark: in UTF-16 each second byte of plain English is 0."""
    if head[1::2].count(0) > len(head) // 4:
        return "utf-16-le"
    if head[::2].count(0) > len(head) // 4:
        return "utf-16-be"
    if 0 in head:
        raise LogError("it is no text: its first bytes have zeros; name a log")
    return "utf-8"
