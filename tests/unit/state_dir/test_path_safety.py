"""Who could put something else in the place of a folder: owners, groups and links on the way to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer.state_dir.path_safety import danger, socket_danger, way_to

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
STRANGER = 12_345


def said(path: Path, *, strict: bool = True) -> str:
    found = danger(path, os.geteuid(), strict=strict, instead="/good")
    return "" if found is None else f"{found.said}; {found.remedy}"


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / "parent"
    folder.mkdir(mode=0o755)
    return folder


def test_a_folder_of_our_own_in_a_sticky_one_is_safe(parent: Path) -> None:
    assert said(parent / "state") == ""
    parent.chmod(0o1777)
    assert said(parent / "a" / "state") == ""


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_the_owner_of_a_folder_on_the_way_can_exchange_what_is_in_it(parent: Path, mode: int) -> None:
    parent.chmod(mode)
    os.chown(parent, STRANGER, -1)
    assert f"as {parent} is of that user; take one below folders of root, such as /good" in said(
        parent / "state"
    )
    assert said(parent / "state", strict=False) == ""
    assert danger(parent / "state", None, strict=True, instead="") is None, "any owner will do"


def test_a_group_can_exchange_what_is_in_its_folder(parent: Path) -> None:
    parent.chmod(0o775)
    assert f"may put something else in its place, as {parent} has mode 775" in said(parent / "state")
    assert said(parent / "state", strict=False) == ""


@pytest.mark.parametrize("strict", [True, False])
def test_a_link_in_a_folder_of_everybody_is_no_way(parent: Path, strict: bool) -> None:
    (parent.parent / "good").mkdir(mode=0o700)
    (parent / "state").symlink_to("../good")
    assert said(parent / "state", strict=strict) == ""
    parent.chmod(0o777)
    assert f"everybody may put something else in its place, as {parent} has mode 777" in said(
        parent / "state" / "in" / "it", strict=strict
    )


@as_root
def test_a_link_of_another_user_is_no_way(parent: Path) -> None:
    parent.chmod(0o1777)
    (parent / "link").symlink_to(parent.parent)
    os.chown(parent / "link", STRANGER, -1, follow_symlinks=False)
    assert f"as {parent / 'link'} is of that user" in said(parent / "link" / "state")


def test_the_way_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "up").symlink_to("..")
    found = way_to(tmp_path / "c" / "up" / "state")
    assert [place for place in found if place.is_relative_to(tmp_path)] == [
        tmp_path,
        tmp_path / "c",
        tmp_path / "a",
        tmp_path / "a" / "b",
        tmp_path / "a" / "b" / "up",
    ]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        way_to(tmp_path / "loop")


def test_a_socket_has_a_folder_where_nobody_else_can_put_one(parent: Path) -> None:
    assert socket_danger(parent / "daemon.sock", os.geteuid()) is None
    parent.chmod(0o1777)
    found = socket_danger(parent / "daemon.sock", os.geteuid())
    assert found is not None and "any user may put a socket of its own" in found.said
    parent.chmod(0o775)
    found = socket_danger(parent / "daemon.sock", os.geteuid())
    assert found is not None and found.said.startswith("group ")


@as_root
def test_a_socket_in_another_users_folder_is_refused(parent: Path) -> None:
    os.chown(parent, STRANGER, -1)
    found = socket_danger(parent / "daemon.sock", os.geteuid())
    assert found is not None and found.said.startswith(f"user {STRANGER} may put")
