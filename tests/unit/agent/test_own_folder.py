"""The folder of a trainer's logs and checkpoints belongs to its user alone."""

from __future__ import annotations

import _ctypes
import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.agent.agent import Agent
from bftrainer.agent.files.logs import FolderError, open_log
from bftrainer.agent.process import COMPILED, LINKS_S, Program, compiled_folder, remove_torn
from bftrainer.agent.warm import WarmPool
from bftrainer.agent.worker import WorkerProcess
from bftrainer.files import held


def test_a_trainers_folder_is_its_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".bftrainer" / "1-a-m"
    for _ in range(2):
        with held(folder, own=True):
            pass
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
    why = "is a link" if link else "belongs to another user"
    with pytest.raises(OSError, match=why), held(folder, own=True):
        pass


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
    with pytest.raises(PermissionError, match="belongs to another user"), held(above / "1-a-m", own=True):
        pass
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
    why = "is a link" if theirs == "0-files" else "belongs to another user"
    with pytest.raises(FolderError, match=why):
        open_log(workdir / ".bftrainer" / "1-a-m" / "n.log", "it starts", program)
    assert not list(home.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_links_are_made_in_the_folder_that_was_looked_at_whatever_others_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write to the workdir can exchange what lies in it at any moment."""
    workdir, home = tmp_path / "workdir", tmp_path / "home"
    own = workdir / ".bftrainer" / "study-1-m" / "0-files"
    home.mkdir()
    workdir.mkdir()
    (workdir / ".bash_profile").write_text("evil")
    theirs = tmp_path / "theirs" / "study-1-m"
    theirs.mkdir(parents=True)
    (theirs / "0-files").symlink_to(home)
    entries = os.scandir(workdir)

    def exchange(_: Path) -> object:
        monkeypatch.undo()  # a later Python looks into folders so for what this test does itself
        (workdir / ".bftrainer").rename(workdir / "before")
        (workdir / ".bftrainer").symlink_to(theirs.parent)
        return entries

    monkeypatch.setattr(os, "scandir", exchange)
    program = Program(command=("a",), workdir=str(workdir), env={}, folder=str(own))
    os.close(open_log(workdir / ".bftrainer" / "1-a-m" / "n.log", "it starts", program))
    assert not list(home.iterdir())
    assert (workdir / "before" / "1-a-m" / "n.log").is_file()
    assert (workdir / "before" / "study-1-m" / "0-files" / ".bash_profile").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("theirs", ["owner", "mode"])
@pytest.mark.parametrize("own", ["1-a-m", "study-1-m/0-files"])
def test_no_program_starts_where_others_could_exchange_its_folder_later(
    tmp_path: Path, theirs: str, own: str
) -> None:
    """Python finds modules, and scripts their checkpoints, by the folder's path. `trainer_dir` may lead to a
    /scratch in which another user has made this user's folder first."""
    workdir, scratch = tmp_path / "home", tmp_path / "scratch" / "ann"
    workdir.mkdir()
    scratch.mkdir(parents=True)
    (scratch / "bftrainer").mkdir()
    if theirs == "owner":
        os.chown(scratch, 65534, 65534)
    else:
        scratch.chmod(0o777)
    program = Program(command=("a",), workdir=str(workdir), env={}, folder=str(scratch / "bftrainer" / own))
    log = scratch / "bftrainer" / "1-a-m" / "n.log"
    with pytest.raises(FolderError, match=rf"{scratch} belongs|away in {scratch}"):
        open_log(log, "it starts", program)
    assert not list((scratch / "bftrainer").iterdir()), "nothing of the user's was made there"
    os.chown(scratch, 0, 0)
    scratch.chmod(0o1777)
    os.close(open_log(log, "it starts", program))


def test_who_can_exchange_the_workdir_may_exchange_what_lies_in_it(tmp_path: Path) -> None:
    """That is so in folders that a group shares: programs there are the group's."""
    workdir = tmp_path / "shared" / "run"
    workdir.mkdir(parents=True)
    workdir.parent.chmod(0o777)
    (tmp_path / "link").symlink_to(workdir)
    program = Program(command=("a",), workdir=str(tmp_path / "link"), env={})
    os.close(open_log(workdir / ".bftrainer" / "1-a-m" / "n.log", "it starts", program))


def test_no_group_may_take_trainers_folders_away(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with held(tmp_path / ".bftrainer" / "1-a-m", own=True):
            pass
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_program_starts_in_the_folder_that_is_its_own_whatever_has_its_name_by_then(tmp_path: Path) -> None:
    own = tmp_path / ".bftrainer" / "study-1-m" / "0-files"
    own.mkdir(parents=True)
    program = Program(command=("a",), workdir=str(tmp_path), env={}, folder=str(own))
    with program.place() as folder:
        (tmp_path / ".bftrainer").rename(tmp_path / "before")
        own.mkdir(parents=True)
        done = subprocess.run(["pwd", "-P"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "before" / "study-1-m" / "0-files")
    os.chown(own, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to another user"), program.place():
        pass


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")


@pytest.fixture
def anew() -> Iterator[None]:
    compiled_folder.cache_clear()
    yield
    compiled_folder.cache_clear()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("mode", "theirs", "home", "place"),
    [
        (0o1777, False, "home", "tmp"),
        pytest.param(0o1777, True, "home", "home/.cache", marks=AS_ROOT),
        (0o777, False, "home", "home/.cache"),
        pytest.param(0o1777, True, "tmp/none/\0", "tmp", marks=AS_ROOT),
    ],
)
def test_what_pytorch_compiles_lies_where_no_other_user_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, theirs: bool, home: str, place: str
) -> None:
    """Whoever makes its folder in /tmp first can exchange what it runs; or anybody, without a sticky bit."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    tmp.chmod(mode)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp))
    monkeypatch.setattr(os.path, "expanduser", lambda _: str(tmp_path / home))
    monkeypatch.delenv(COMPILED, raising=False)
    usual = tmp / f"bftrainer-compiled-{os.geteuid()}"
    if theirs:
        usual.mkdir(mode=0o777)
        os.chown(usual, 65534, 65534)
    folder = Path(Program(command=("a",), workdir=".", env={}).environment()[COMPILED])
    assert folder.parent == tmp_path / place and (folder == usual) is not (theirs or mode == 0o777)
    assert folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o777 == 0o700
    chosen = Program(command=("a",), workdir=".", env={COMPILED: "mine"})
    assert chosen.environment()[COMPILED] == "mine"


def test_a_library_that_a_killed_worker_has_linked_in_part_is_removed(tmp_path: Path) -> None:
    whole = Path(_ctypes.__file__).read_bytes()
    (tmp_path / "ab").mkdir()
    for name, data in {"whole": whole, "half": whole[: len(whole) // 2], "empty": b"", "new": b""}.items():
        (tmp_path / "ab" / f"{name}.so").write_bytes(data)
        if name != "new":
            os.utime(tmp_path / "ab" / f"{name}.so", (0, time.time() - LINKS_S - 1))
    remove_torn(tmp_path)
    remove_torn(tmp_path / "none")
    assert {path.name for path in tmp_path.glob("*/*")} == {"whole.so", "new.so"}
