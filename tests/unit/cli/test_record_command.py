"""`bftrainer record` on stand-ins for Slurm's commands: ended by SIGTERM, then read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer.cli import app
from tests.support.slurm_commands import Commands
from tests.support.waiting import until


def test_a_recorder_ends_in_order_and_what_it_wrote_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    Commands(bin_)
    folder = tmp_path / "series"
    words = [sys.executable, "-m", "bftrainer", "record", str(folder), "--every", "1"]
    environ = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    with subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        until(lambda: any(p.read_bytes().count(b"\n") > 2 for p in folder.glob("*")), "two snapshots")
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 0, said
    assert "ended: " in said and "0 polls without an answer" in said
    assert [path.suffix for path in folder.iterdir()] == [".gz"]
    shown = CliRunner().invoke(app, ["trace", "info", str(folder), "--json", "--machine-nodes", "100"])
    told = json.loads(shown.stdout)
    assert told["log"]["format"] == "snapshots" and told["log"]["broken"] == 0
    assert told["fragments"] > 0


def test_the_local_machine_plays_a_log_and_records_none(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["record", str(tmp_path), "--scheduler", "local"])
    assert "is no batch system" in str(shown.exception)
