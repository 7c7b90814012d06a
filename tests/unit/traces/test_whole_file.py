"""Files that appear when they are complete."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from bftrainer.traces.whole_file import whole_file


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
