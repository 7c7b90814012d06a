"""Why a script failed, as its log tells: the error of its last traceback, or its last line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from bftrainer.agent.last_error import MOST_BYTES, MOST_SAID, last_error, said_in

FRAMES = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import nothere\n'
ERROR = FRAMES + "ModuleNotFoundError: No module named 'nothere'\n"
TOLD = ": ModuleNotFoundError: No module named 'nothere'"


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (ERROR, TOLD),
        ("step 1\n" + ERROR + "warning: 3 leaked semaphores\n", TOLD),
        (
            FRAMES + "KeyError: 1\n\nDuring handling of the above exception, another occurred:\n\n" + ERROR,
            TOLD,
        ),
        (ERROR + "Exception ignored in: <function A.__del__>\n" + FRAMES + "OSError: gone\n", TOLD),
        ("".join(f"[rank1]: {line}\n" for line in ERROR.splitlines()), TOLD),
        (ERROR.replace("\n", "\r\n"), TOLD),
        (" 10%|#  | 1/10\r 20%|## | 2/10\r" + ERROR, TOLD),
        (FRAMES + "ValueError: first line\nsecond line\n", ": ValueError: first line"),
        ("usage: a.py [-h]\na.py: error: unrecognized arguments: --x\n", "; its last line: a.py: error: un"),
        (FRAMES, "; its last line: import nothere"),
        ("2026-11-26 21:46:59 bftrainer: trainer 1 resumes from step 3\n", ""),
        ("", ""),
        (
            FRAMES + "ValueError: \x1b]0;owned\x07\x1b[31mred\u202e\n",
            r": ValueError: \x1b]0;owned\x07\x1b[31m",
        ),
        (FRAMES + "ValueError: " + "x" * 100_000, ": ValueError: xxx"),
    ],
)
def test_what_a_log_tells(printed: str, told: str) -> None:
    found = said_in(printed)
    assert found.startswith(told) and bool(found) is bool(told)
    assert len(found) < MOST_SAID + 30 and found.isprintable()


def test_only_the_end_of_what_this_process_printed_is_read(tmp_path: Path) -> None:
    log = tmp_path / "n.log"
    log.write_text(ERROR)
    start = log.stat().st_size
    assert last_error(log, start) == "" and last_error(log, 0) == TOLD
    with log.open("a") as file:
        file.write(FRAMES + "OSError: early\n" + "x\n" * MOST_BYTES + "the end\n")
    assert last_error(log, start) == "; its last line: the end"
    log.write_bytes(b"\xff\xfe\n")
    assert last_error(log, 0).startswith("; its last line: ")


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert last_error(tmp_path / "none.log", 0) == ""
    os.mkfifo(tmp_path / "pipe.log")
    assert last_error(tmp_path / "pipe.log", 0) == ""


def test_a_script_that_could_print_nothing_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk may be full, and that may be why it failed."""
    log = tmp_path / "n.log"
    log.touch()
    assert last_error(log, 0) == ""
    monkeypatch.setattr(os, "write", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    assert last_error(log, log.stat().st_size) == "; its log cannot be written: No space left on device"


def test_the_interpreters_own_words_are_found(tmp_path: Path) -> None:

    for line, told in (("import nothere", TOLD), ("def", "SyntaxError: ")):
        script = tmp_path / "a.py"
        script.write_text(line)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
        assert told in said_in(done.stderr)
