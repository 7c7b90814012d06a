"""A process that another program has started, not bftrainer, is told so, and what to do instead."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bftrainer.elastic.process import channel
from bftrainer.elastic.process.channel import VARIABLE, Orders

ABOUT = {"trainer": 1, "node": "n", "generation": 1, "address": "127.0.0.1", "samples": None}
ABOUT |= {"checkpoint_dir": "c", "checkpoint_every_s": 1.0}
INSTEAD = r"another program than bftrainer.*launcher: torchrun.*exec python train.py"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is made has its place in a folder of the test."""
    monkeypatch.chdir(tmp_path)


def told(monkeypatch: pytest.MonkeyPatch, **more: Any) -> Orders | None:
    monkeypatch.setenv(VARIABLE, json.dumps({**ABOUT, **more}))
    return Orders.from_environment()


def test_the_connection_is_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_have_orders", set())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inode = os.fstat(ours.fileno()).st_ino
        found = told(monkeypatch, fd=ours.fileno(), socket=inode)
        assert found is not None and found.fd == ours.fileno()
        with pytest.raises(RuntimeError, match=INSTEAD):
            told(monkeypatch, fd=theirs.fileno(), socket=inode)


def test_a_second_run_in_a_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_have_orders", set())
    assert Orders.from_environment() is None, "by hand"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert told(monkeypatch, fd=ours.fileno()) is not None
        with pytest.raises(RuntimeError, match="Submit a trainer for each run"):
            Orders.from_environment()


def test_a_descriptor_that_was_closed_or_is_another_file_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, theirs = socket.socketpair()
    closed = ours.detach()
    os.close(closed)
    theirs.close()
    with pytest.raises(RuntimeError, match=INSTEAD):
        told(monkeypatch, fd=closed)
    with (tmp_path / "file").open("w") as file, pytest.raises(RuntimeError, match=INSTEAD):
        told(monkeypatch, fd=file.fileno())


@pytest.mark.parametrize("leads", [True, False])
def test_a_script_that_waits_for_signals_has_to_be_the_process_that_gets_them(leads: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        orders = {**ABOUT, "fd": ours.fileno(), "leads": True}
        done = subprocess.run(
            [sys.executable, "-c", "from bftrainer import elastic; elastic.attach()"],
            env={**os.environ, VARIABLE: json.dumps(orders)},
            pass_fds=[ours.fileno()],
            process_group=0 if leads else None,
            capture_output=True,
            check=False,
            text=True,
        )
    assert (done.returncode == 0) is leads, done.stderr
    assert leads or "gets bftrainer's signals in its place" in done.stderr
