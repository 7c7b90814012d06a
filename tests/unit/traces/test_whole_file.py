"""Files that appear when they are complete."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import bftrainer
from bftrainer.errors import BftrainerError
from bftrainer.traces.whole_file import copy_folder, whole_file, write_whole


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("before")
    with whole_file(path) as draft:
        draft.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [tmp_path / "log.csv"]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), whole_file(path) as draft:
        draft.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [tmp_path / "log.csv"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    """Root may replace a device: every process that uses it would fail from then on."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"), whole_file(pipe):
        pass
    assert not pipe.is_file() and list(tmp_path.iterdir()) == [tmp_path / "pipe"]


@pytest.mark.parametrize("exchange", ["link", "folder"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_what_others_put_in_the_place_of_the_draft_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    private, made = tmp_path / "private", tempfile.mkdtemp
    private.mkdir()
    (private / "out.csv").write_text("mine")

    def exchanged(**given: object) -> str:
        folder = Path(made(**given))  # type: ignore[call-overload]
        folder.rename(tmp_path / "before")
        if exchange == "link":
            folder.symlink_to(private)
        else:
            folder.mkdir()
            (folder / "draft").symlink_to(private / "out.csv")
        os.chown(folder, 65534, 65534, follow_symlinks=False)
        return str(folder)

    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "mkdtemp", exchanged)
    with pytest.raises(PermissionError, match="another user"), whole_file(tmp_path / "out.csv") as draft:
        draft.write_text("x")
    assert (private / "out.csv").read_text() == "mine"


def test_what_is_written_takes_the_place_of_a_link(tmp_path: Path) -> None:
    """Others may have put it there, in a folder where they may write."""
    (tmp_path / "private").write_text("mine")
    (tmp_path / "out.html").symlink_to(tmp_path / "private")
    write_whole(tmp_path / "out.html", "page")
    assert (tmp_path / "private").read_text() == "mine"
    assert (tmp_path / "out.html").read_text() == "page" and not (tmp_path / "out.html").is_symlink()


def test_a_folder_is_copied_where_nobody_else_can_put_links_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, keep, modes = tmp_path / "source", tmp_path / "kept", []
    (source / "run").mkdir(parents=True)
    (source / "log.csv").write_text("log")
    (source / "daemon.sock").write_text("")
    copy = shutil.copytree

    def watched(source: Path, target: Path, *more: Any, **given: Any) -> Path:
        if not modes:  # it calls itself for each folder in it
            modes.append(Path(target).parent.stat().st_mode & 0o777)
        assert not keep.exists()
        return copy(source, target, *more, **given)

    monkeypatch.setattr(shutil, "copytree", watched)
    copy_folder(source, keep, "*.sock")
    assert modes == [0o700] and sorted(path.name for path in keep.iterdir()) == ["log.csv", "run"]
    with pytest.raises(BftrainerError, match=r"--keep .*kept: File exists"):
        copy_folder(source, keep)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "source"]


def test_no_command_writes_through_what_lies_at_a_path() -> None:
    """All files that a command is told to write are new ones."""
    writes = re.compile(r"""savefig\((?!draft|buffer|out)|\.open\("w"|write_(?:text|bytes)\(""")
    package = Path(bftrainer.__file__).parent
    found = {
        str(path.relative_to(package)): line.strip()
        for place in ("cli", "replay", "series", "traces", "search", "demo")
        for path in (package / place).rglob("*.py")
        for line in path.read_text().splitlines()
        if writes.search(line) and "draft" not in line
    }
    own = ("cli/shared/reference.py", "cli/web_command.py", "demo/session.py", "demo/picture.py")
    assert not {path: line for path, line in found.items() if path not in own}, "use whole_file"
