"""One daemon per state directory, and what a second one is told."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.state_dir import lock
from bftrainer.state_dir.lock import exclusively, holder_of
from tests.support.processes import daemon_that_ends


def left_by(place: Path, host: str) -> None:
    (place / "daemon.lock").write_text(json.dumps({"host": host, "pid": 7, "since": "2026-01-02T03:04:05Z"}))


def test_a_second_daemon_is_told_which_one_has_the_folder(tmp_path: Path) -> None:
    with exclusively(tmp_path):
        found = holder_of(tmp_path)
        assert found is not None
        assert (found.host, found.pid) == (socket.gethostname(), os.getpid())
        with (
            pytest.raises(
                BftrainerError, match=rf"another daemon \(pid {found.pid} on {found.host}, since 2.*Z\) uses"
            ),
            exclusively(tmp_path),
        ):
            pass
    assert holder_of(tmp_path) is None, "it stopped in order"
    with exclusively(tmp_path):
        pass


def test_a_second_daemon_leaves_the_store_alone(tmp_path: Path) -> None:
    with exclusively(tmp_path):
        done = daemon_that_ends(tmp_path, 60)
    assert done.returncode == 1
    assert f"another daemon (pid {os.getpid()} on" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["daemon.lock"], "no store was opened"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_not_taken_for_another_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    with pytest.raises(BftrainerError, match=r"has no locks \(flock: .*take a --state-dir on a disk"):
        exclusively(tmp_path).__enter__()


def test_a_folder_that_another_machine_may_still_use_is_not_taken(tmp_path: Path) -> None:
    left_by(tmp_path, "login2.example")
    with exclusively(tmp_path):
        pass  # on a disk of this machine the name is an old one
    left_by(tmp_path, "login2.example")
    with pytest.raises(BftrainerError, match=r"pid 7 on login2.example, since 2026-01-02.*or remove"):
        exclusively(tmp_path, on_network=True).__enter__()
    assert holder_of(tmp_path) is not None, "what it says stays for the next one"
    left_by(tmp_path, socket.gethostname())
    with exclusively(tmp_path, on_network=True):
        pass


@pytest.mark.parametrize("said", ["", "123", "[]", '{"host": 1}', "\x00\xff" * 9_000])
def test_an_earlier_versions_lock_file_is_no_obstacle(tmp_path: Path, said: str) -> None:
    (tmp_path / "daemon.lock").write_text(said)
    assert holder_of(tmp_path) is None
    with exclusively(tmp_path):
        assert holder_of(tmp_path) is not None


def test_the_folder_is_locked_too_so_that_nothing_cleans_it_up(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with exclusively(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)
