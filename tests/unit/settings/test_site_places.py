"""Places of a site's daemon and its users: who can go there."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
from aiohttp import web

from bftrainer.agent.worker import own_folder
from bftrainer.api.listen import listen
from bftrainer.daemon.lock import make_state_dir
from bftrainer.errors import BftrainerError


@pytest.fixture
def reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to which everybody can go, as far as its parents below pytest's own are concerned."""
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            monkeypatch.setattr(Path, "parents", property(lambda path: ()))
    tmp_path.chmod(0o755)
    return tmp_path


def listening(socket: Path, *, for_all: bool) -> int:
    async def mode() -> int:
        runner = await listen(web.Application(), socket, for_all=for_all)
        try:
            return socket.stat().st_mode & 0o777
        finally:
            await runner.cleanup()

    return asyncio.run(mode())


def test_the_socket_is_its_owners_or_everybodys(reachable: Path) -> None:
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


def test_a_sites_state_is_closed_to_others(tmp_path: Path) -> None:
    make_state_dir(tmp_path / "a" / "b", private=True)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o750)
    make_state_dir(tmp_path / "open", private=False)
    with pytest.raises(BftrainerError, match=r"is open to others \(mode 750\).*chmod 700"):
        make_state_dir(tmp_path / "open", private=True)
    (tmp_path / "file").touch()
    with pytest.raises(BftrainerError, match="take another"):
        make_state_dir(tmp_path / "file", private=False)


def test_a_trainers_folder_is_its_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".bftrainer" / "1-a-m"
    own_folder(folder)
    own_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_that_somebody_else_put_there_is_refused(tmp_path: Path, link: bool) -> None:
    folder, own = tmp_path / "1-a-m", tmp_path / "own"
    own.mkdir()
    if link:
        folder.symlink_to(own)
    else:
        folder.mkdir()
    os.chown(folder, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="belongs to another user"):
        own_folder(folder)
