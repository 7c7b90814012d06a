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
from bftrainer.messages.files.logs import OTHER_KIND, TOO_LONG
from bftrainer.traces.intervals import LogError

MOST_CHARACTERS = 4_000_000
"""Most characters of a line, such as one that names all nodes of a machine."""
MOST_UNPACKED = 50_000_000_000
"""No log is longer, in characters: what a small packed file can hold has no end otherwise."""
LOOKED_AT = 512
"""Number of first bytes that tell a file's kind."""
ENCODINGS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
NO_TEXT = (
    (b"\x28\xb5\x2f\xfd", "packed by zstd", "what unzstd makes of it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "the file that 7z x unpacks"),
    (b"Rar!", "a RAR archive", "the file that unrar x unpacks"),
    (b"\x1f\x9d", "packed by compress", "what uncompress makes of it"),
    (b"\x04\x22\x4d\x18", "packed by lz4", "what unlz4 makes of it"),
    (b"PAR1", "a Parquet file", "it as CSV"),
    (b"SQLite format 3", "an SQLite database", "its jobs as CSV"),
    (b"\x89HDF", "an HDF5 file", "it as CSV"),
    (b"%PDF", "a PDF", "the file from which it was printed"),
    (b"\xd0\xcf\x11\xe0", "a file of an old Office", "it as CSV"),
)
"""Beginnings of binary files, their kind, and the file to take instead."""


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
            raise LogError(TOO_LONG.say(what=f"line {number} has", most=MOST_CHARACTERS))
        all_ += len(line)
        if all_ > MOST_UNPACKED:
            raise LogError(TOO_LONG.say(what=f"up to line {number} it has", most=MOST_UNPACKED))
        yield line


def unpacked(raw: BinaryIO, *, errors: str = "strict") -> TextIO:
    """The text of an open file: plain, gzip, xz, bzip2, or the only file of a zip; in UTF-8 or UTF-16, with
    or without a mark at its begin. `errors` as for the built-in `open`.

    Raises:
        LogError: not text.
    """
    file = _plain(raw)
    head = file.peek(LOOKED_AT)[:LOOKED_AT]
    for magic, what, instead in NO_TEXT:
        if head.startswith(magic):
            raise LogError(OTHER_KIND.say(what=what, instead=instead))
    if head[257:262] == b"ustar":
        raise LogError(OTHER_KIND.say(what="a tar archive", instead="the file in it that tar xf unpacks"))
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
            raise LogError(OTHER_KIND.say(what="an Excel file", instead="it as CSV"))
        if len(files) != 1:
            what = f"a zip archive of {len(files)} files"
            raise LogError(OTHER_KIND.say(what=what, instead="one of them, unpacked"))
        if files[0].file_size > MOST_UNPACKED:
            raise LogError(TOO_LONG.say(what="the file in it has", most=MOST_UNPACKED))
        return cast("BufferedReader", archive.open(files[0]))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        # it is damaged, packed by another method, or locked
        what = f"a zip archive that cannot be read ({error})"
        raise LogError(OTHER_KIND.say(what=what, instead="the file in it, unpacked")) from None


def _unmarked(head: bytes) -> str:
    """The encoding of a text without a mark: in UTF-16 each second byte of plain English is 0."""
    if head[1::2].count(0) > len(head) // 4:
        return "utf-16-le"
    if head[::2].count(0) > len(head) // 4:
        return "utf-16-be"
    if 0 in head:
        raise LogError(
            OTHER_KIND.say(what="no text, as its first bytes have zeros", instead="the log itself")
        )
    return "utf-8"
