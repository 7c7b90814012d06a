"""The process of `bftrainer web` ends by a signal, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer.replay.record import storage
from bftrainer.replay.record.checked import checked
from tests.unit.replay.test_altered_records import RECORD


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_the_folder_with_the_link_goes_with_the_process(tmp_path: Path, sign: signal.Signals) -> None:
    record, temporary = tmp_path / "made.json.gz", tmp_path / "tmp"
    temporary.mkdir()
    storage.write(checked(RECORD), record)
    words = [sys.executable, "-P", "-m", "bftrainer", "web", str(record)]
    environ = {**os.environ, "TMPDIR": str(temporary)}
    environ.pop("DISPLAY", None)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ)
    assert process.stdout is not None
    with process.stdout as printed:
        assert any(b"no browser is opened" in line for line in printed), "the file with the link is there"
        assert list(temporary.iterdir())
        process.send_signal(sign)
        printed.read()
    assert process.wait(60) and not list(temporary.iterdir())
