"""Files that others name: nothing is waited for, and nothing read without end."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from bftrainer import files
from bftrainer.files import held, open_regular, read_text


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to("/dev/zero")
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for path in (fifo, tmp_path, tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened, "none is left open"
    (tmp_path / "file").write_text("a")
    (tmp_path / "to").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "to") as file:
        assert file.read() == b"a"


def test_no_more_is_read_than_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a" * 2000)
    assert read_text(path, 2) == "a" * 2000
    with pytest.raises(OSError, match="2000 bytes; at most 1 kB are read"):
        read_text(path, 1)


def test_a_held_folder_stays_the_same_whatever_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("above")
    (tmp_path / "above").mkdir()
    with held(tmp_path / "link" / ".." / "above" / "a" / "b") as folder:
        (tmp_path / "above" / "a").rename(tmp_path / "c")
        (tmp_path / "above" / "a" / "b").mkdir(parents=True)
        (folder / "file").write_text("x")
    assert [path.name for path in (tmp_path / "c" / "b").iterdir()] == ["file"]
    assert not list((tmp_path / "above" / "a" / "b").iterdir())


def test_what_is_no_folder_is_not_held_and_nothing_stays_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "loop" / "x")
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for name, own in itertools.product(
        ("file", "file/x", "loop", "loop/x", "dangling", "x\0"), (False, True)
    ):
        with pytest.raises((OSError, ValueError)), held(tmp_path / name, own=own):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
@pytest.mark.parametrize(
    ("owner", "mode", "link", "is_followed"),
    [
        (65534, 0o777, 65534, False),
        (65534, 0o775, 65534, False),
        (65534, 0o1777, 65534, False),
        (65534, 0o755, 1, False),
        (0, 0o1777, 65534, False),
        (65534, 0o777, 0, True),
    ],
)
def test_links_of_other_users_are_followed_only_where_nobody_else_may_make_them(
    tmp_path: Path, owner: int, mode: int, link: int, is_followed: bool
) -> None:
    """The folder of the tests is below /tmp, where everybody may write."""
    shared, private = tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    private.mkdir()
    (shared / "link").symlink_to(private)
    os.chown(shared / "link", link, link, follow_symlinks=False)
    os.chown(shared, owner, owner)
    shared.chmod(mode)
    try:
        with held(shared / "link" / "folder"):
            pass
    except PermissionError as error:
        assert "a link that belongs to another user" in str(error)
    assert (private / "folder").is_dir() == is_followed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_no_link_is_followed_out_of_a_folder_that_a_stranger_may_have_put_there(tmp_path: Path) -> None:
    """In one with a sticky bit, such as /scratch, anybody makes folders that are then theirs alone."""
    shared, private = tmp_path / "shared", tmp_path / "private"
    (shared / "theirs").mkdir(parents=True)
    (shared / "theirs" / "run").symlink_to(private)
    for path in (shared / "theirs" / "run", shared / "theirs"):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    shared.chmod(0o1777)
    with pytest.raises(PermissionError, match="another user"), held(shared / "theirs" / "run"):
        pass
    assert not private.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_a_link_is_followed_out_of_its_owners_folder_where_others_write_nowhere_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the folder could as well move what the link leads to."""
    monkeypatch.setattr(files, "_OTHERS_WRITE", 0)  # /tmp is such a folder
    theirs, place = tmp_path / "theirs", tmp_path / "place"
    theirs.mkdir()
    (theirs / "data").symlink_to(place)
    for path in (theirs / "data", theirs):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    with held(theirs / "data"):
        assert place.is_dir()
