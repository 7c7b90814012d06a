"""The folder of a daemon's state: which users can read it, and what another user may have put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.files import private_file
from bftrainer.launch.horovod import drivers
from bftrainer.schedulers.local.scheduler import start
from bftrainer.schedulers.shared.instance import instance
from bftrainer.state_dir import folder
from bftrainer.state_dir.folder import StateDirError, check_state_dir, make_state_dir
from bftrainer.store.sql import SqlStore

WIDE = 0o022


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def said() -> list[str]:
    return []


def test_a_sites_state_is_closed_to_others(tmp_path: Path, said: list[str]) -> None:
    make_state_dir(tmp_path / "a" / "b", private=True, say=said.append)
    assert mode(tmp_path / "a" / "b") == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o750)
    with pytest.raises(BftrainerError, match=r"is open to others \(mode 750\).*chmod 700"):
        make_state_dir(tmp_path / "open", private=True, say=said.append)
    (tmp_path / "file").touch()
    with pytest.raises(BftrainerError, match="is no folder; take another"):
        make_state_dir(tmp_path / "file", private=True, say=said.append)


def test_ones_own_folder_and_what_an_earlier_version_left_open_in_it_are_closed(
    tmp_path: Path, said: list[str]
) -> None:
    place = tmp_path / "state"
    (place / "logs").mkdir(parents=True)
    there = [place / name for name in ("bftrainer.db", "bftrainer.db-wal", "key", "logs/agent-n1.log")]
    for path in there:
        path.touch()
        path.chmod(0o644)
    for path in (place, place / "logs"):
        path.chmod(0o755)
    make_state_dir(place, say=said.append)
    assert {mode(path) for path in there} == {0o600}
    assert (mode(place), mode(place / "logs")) == (0o700, 0o700)
    assert len(said) == 6
    assert "mode 755" in said[0] and "mode 700" in said[0]
    make_state_dir(place, say=said.append)
    assert len(said) == 6, "said once"
    (place / "instance").touch()
    (place / "instance").chmod(0o644)
    make_state_dir(place, say=said.append)
    assert (mode(place / "instance"), len(said)) == (0o600, 6), "nobody could read it"


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path, said: list[str]) -> None:
    """A home directory, say."""
    (tmp_path / "notes").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(BftrainerError, match="files that are not a daemon's; take a folder of its own"):
        make_state_dir(tmp_path, say=said.append)
    assert mode(tmp_path) == 0o755


def test_files_of_the_daemon_are_its_own_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqlStore(tmp_path / "bftrainer.db")
        os.close(private_file(tmp_path / "daemon.lock"))
        (tmp_path / "key").touch(mode=0o644)
        os.close(private_file(tmp_path / "key"))
        instance(tmp_path, create=True)
        drivers._open_log(tmp_path / "1.log").close()
        start(["true"], tmp_path / "agent-n1.log", "secret", {}).wait()
    finally:
        os.umask(before)
    store.put("a", "b")
    assert {path.name for path in tmp_path.iterdir()} >= {"bftrainer.db", "bftrainer.db-wal"}
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}


def test_a_link_is_not_followed_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "daemon.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        private_file(tmp_path / "daemon.lock")


def test_a_folder_that_another_user_has_made_is_refused(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "bftrainer-me"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(folder.os, "geteuid", lambda: place.stat().st_uid + 12_345)
    with pytest.raises(BftrainerError, match=r"belongs to user .*; take another --state-dir"):
        make_state_dir(place, say=said.append)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_that_another_user_has_put_there_is_refused(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "key").touch()
    os.chown(tmp_path / "key", 12_345, 12_345)
    with pytest.raises(BftrainerError, match="another user has put something into state_dir"):
        make_state_dir(tmp_path, say=said.append)


def test_a_place_where_everybody_can_exchange_the_folder_is_refused(tmp_path: Path, said: list[str]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(BftrainerError, match=r"shared has mode 777; say chmod o-w"):
        make_state_dir(shared / "state", say=said.append)
    shared.chmod(0o1777)
    make_state_dir(shared / "state", say=said.append)


@pytest.mark.parametrize("name", ["notes", "instance.old"])
def test_a_folder_of_other_programs_is_never_to_be_closed(tmp_path: Path, name: str) -> None:
    """Such as /var/lib: to close it would break them."""
    (tmp_path / "key").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(StateDirError) as refused:
        check_state_dir(tmp_path, None, private=True)
    assert refused.value.remedy == f"say: chmod 700 {tmp_path}"
    (tmp_path / name).touch()
    with pytest.raises(StateDirError) as refused:
        check_state_dir(tmp_path, None, private=True)
    assert "chmod" not in str(refused.value)
    assert refused.value.remedy == f"take a folder of its own as --state-dir, such as {tmp_path}/bftrainer"


def test_a_place_that_keeps_no_files_is_refused() -> None:
    with pytest.raises(StateDirError, match="on proc, which keeps no files"):
        check_state_dir(Path("/proc/bftrainer"), os.geteuid(), private=False)


def test_a_refused_place_stays_as_it_was(tmp_path: Path, said: list[str]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    with pytest.raises(StateDirError, match=r"group .* may put something else in its place"):
        make_state_dir(shared / "a" / "state", private=True, say=said.append)
    assert list(shared.iterdir()) == []
    make_state_dir(shared / "a" / "state", say=said.append)
