"""The folder of a trainer's logs and checkpoints belongs to its user alone."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bftrainer.agent.agent import Agent
from bftrainer.agent.files.logs import FolderError, open_log, own_folder
from bftrainer.agent.process import Program
from bftrainer.agent.warm import WarmPool
from bftrainer.agent.worker import WorkerProcess


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("theirs", [".bftrainer", "study-1-m", "0-files"])
def test_no_links_are_made_where_another_users_link_leads(tmp_path: Path, theirs: str) -> None:
    """Who may write to the workdir chooses their names, such as .bash_profile, and what they lead to."""
    workdir, home = tmp_path / "workdir", tmp_path / "home"
    own = workdir / ".bftrainer" / "study-1-m" / "0-files"
    own.parent.mkdir(parents=True)
    home.mkdir()
    (workdir / ".bash_profile").write_text("evil")
    own.symlink_to(home)
    for path in (own, *own.parents):
        if path.name == theirs:
            os.chown(path, 65534, 65534, follow_symlinks=False)
    program = Program(command=("a",), workdir=str(workdir), env={}, folder=str(own))
    with pytest.raises(FolderError, match="belongs to another user"):
        open_log(workdir / ".bftrainer" / "1-a-m" / "n.log", "it starts", program)
    assert not list(home.iterdir())


def test_no_group_may_take_trainers_folders_away(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        own_folder(tmp_path / ".bftrainer" / "1-a-m")
    finally:
        os.umask(before)
    assert (tmp_path / ".bftrainer").stat().st_mode & 0o777 == 0o755


def test_a_trainer_without_its_folder_has_failed_itself_and_is_told_why(tmp_path: Path) -> None:
    (tmp_path / ".bftrainer").write_text("no folder")
    told: list[tuple[int, str]] = []
    log = tmp_path / ".bftrainer" / "1-a-m" / "n.log"
    order = {"trainer": 1, "generation": 2, "command": ["a"], "workdir": None, "env": {}, "log": str(log)}

    async def scenario() -> None:
        agent = Agent.__new__(Agent)
        worker = WorkerProcess(
            *(order, "n", "127.0.0.1", WarmPool("n"), lambda *_: None),
            lambda _, code, reason: told.append((code, reason)),
        )
        with pytest.raises(FolderError) as failed:
            await worker.start()
        agent._failed(worker, failed.value)

    asyncio.run(scenario())
    ((code, reason),) = told
    assert code == 127, "no signal from outside, so its program is to blame"
    assert reason.startswith(f"no log can be written at {tmp_path}/.bftrainer") and "workdir" in reason
