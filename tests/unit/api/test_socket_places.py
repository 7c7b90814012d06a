"""Where a daemon's socket can be, and which users can reach it."""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
from pathlib import Path

import pytest

from bftrainer.api.transport.listen import bind, bind_unix, held_by
from bftrainer.errors import BftrainerError


@pytest.fixture
def reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that all users can enter, as far as its parents below pytest's own are concerned."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            monkeypatch.setattr(Path, "parents", property(lambda path: ()))
    tmp_path.chmod(0o755)
    return tmp_path


def listening(at: Path, *, for_all: bool) -> int:
    bind_unix(at, for_all=for_all).close()
    return at.stat().st_mode & 0o777


def test_the_socket_is_for_its_owner_or_for_all(reachable: Path) -> None:
    before = os.umask(0o022)
    try:
        assert listening(reachable / "s", for_all=False) == 0o600
        assert listening(reachable / "s", for_all=True) == 0o666
        assert os.umask(0o022) == 0o022, "the umask is as it was"
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("path", "for_all", "words"),
    [
        ("closed/s", True, "users cannot reach it through .*closed; allow it with chmod o.x"),
        ("nowhere/s", True, "nowhere: No such file or directory; make the folder first"),
        ("nowhere/s", False, "nowhere/s: No such file or directory"),
        ("s" * 100, False, "at most 100 bytes"),
    ],
)
def test_where_no_socket_can_be(reachable: Path, path: str, for_all: bool, words: str) -> None:
    (reachable / "closed").mkdir(mode=0o700)
    with pytest.raises(BftrainerError, match=words):
        listening(reachable / path, for_all=for_all)


def test_who_has_taken_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        me = pwd.getpwuid(os.geteuid()).pw_name
        with pytest.raises(
            BftrainerError, match=f"listen 127.0.0.1:{port}: .*user {re.escape(me)} listens there"
        ):
            bind(f"127.0.0.1:{port}")


def test_what_the_kernel_does_not_say_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("sl\n 0: 0100007F:1D28\n")
    assert held_by(7464, (tmp_path / "odd", tmp_path / "none")) == ""
