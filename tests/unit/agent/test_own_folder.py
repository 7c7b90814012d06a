"""The folder of a trainer's logs and checkpoints belongs to its user alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bftrainer.agent.worker import own_folder


def test_a_trainers_folder_is_its_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".bftrainer" / "1-a-m"
    own_folder(folder)
    own_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_that_another_user_put_there_is_refused(tmp_path: Path, link: bool) -> None:
    folder, own = tmp_path / "1-a-m", tmp_path / "own"
    own.mkdir()
    if link:
        folder.symlink_to(own)
    else:
        folder.mkdir()
    os.chown(folder, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match="belongs to another user"):
        own_folder(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("kind", ["folder", "link", "link to their folder"])
def test_a_folder_is_refused_that_another_user_could_take_away(tmp_path: Path, kind: str) -> None:
    above, place = tmp_path / ".bftrainer", tmp_path / "place"
    place.mkdir()
    if kind == "folder":
        above.mkdir()
    else:
        above.symlink_to(place)
    given = place if kind == "link to their folder" else above
    os.chown(given, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match=r"could take trainers' folders away.*\.bftrainer"):
        own_folder(above / "1-a-m")
    assert not list(place.iterdir())
