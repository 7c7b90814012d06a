"""What workers printed, read by who may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer import worker_output
from bftrainer.errors import BftrainerError
from bftrainer.state_dir.folder import user_name

OWN = os.geteuid()


def text(found: dict[str, worker_output.LogPart]) -> dict[str, str]:
    return {name: part.text for name, part in found.items()}


def test_the_last_lines_of_each_node(tmp_path: Path) -> None:
    (tmp_path / "n2.log").write_text("a\nb\nc")
    (tmp_path / "n1.log").write_bytes(b"x\xff\n")
    (tmp_path / "other.txt").write_text("no log")
    (tmp_path / "checkpoints").mkdir()
    found = worker_output.last_lines(tmp_path, 2, of=OWN)
    assert list(found) == ["n1", "n2"]
    assert text(found) == {"n1": "x\N{REPLACEMENT CHARACTER}\n", "n2": "b\nc"}
    assert text(worker_output.last_lines(tmp_path, 2, "n1", of=OWN)) == {"n1": "x\N{REPLACEMENT CHARACTER}\n"}
    assert worker_output.last_lines(tmp_path / "nothing-yet", 2, of=OWN) == {}


def test_what_is_added_comes_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "n1.log"
    log.write_text("old\n")
    ends = {name: part.end for name, part in worker_output.last_lines(tmp_path, 5, of=OWN).items()}
    log.write_text("old\nnew\nhal")
    found = worker_output.added(tmp_path, ends, of=OWN)
    assert text(found) == {"n1": "new\n"}
    log.write_text("old\nnew\nhalf\n")
    (tmp_path / "n2.log").write_text("came later\n")
    found = worker_output.added(tmp_path, {name: part.end for name, part in found.items()}, of=OWN)
    assert text(found) == {"n1": "half\n", "n2": "came later\n"}


def test_no_more_is_read_than_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / "n1.log").write_bytes(b"x\n" * worker_output.MAX_BYTES)
    part = worker_output.last_lines(tmp_path, 10_000_000, of=OWN)["n1"]
    assert len(part.text) == worker_output.MAX_BYTES and part.end == 2 * worker_output.MAX_BYTES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_others_files_are_explained(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom bftrainer import worker_output\n"
        "os.setuid(65534)\ntry:\n    worker_output.last_lines(Path(sys.argv[1]), 3, of=0)\n"
        "except Exception as error:\n    print(error)"
    )
    tmp_path.chmod(0o700)
    said = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert "it is not yours to read" in said.stdout


def test_only_files_of_the_trainers_user_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of a third user\n")
    folder = tmp_path / "trainer"
    folder.mkdir()
    (folder / "n1.log").write_text("own\n")
    (folder / "n2.log").symlink_to(secret)
    uid = os.geteuid()
    assert text(worker_output.last_lines(folder, 3, of=uid)) == {"n1": "own\n"}
    assert text(worker_output.added(folder, {}, of=uid)) == {"n1": "own\n"}
    assert worker_output.last_lines(folder, 3, of=uid + 1) == {}, "a hard link, or a folder that is a link"


def test_a_link_put_there_after_the_look_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "n1.log").symlink_to("/etc/passwd")
    monkeypatch.setattr(worker_output, "_is_file", lambda path, of: True)
    with pytest.raises(BftrainerError, match=r"n1\.log"):
        worker_output.last_lines(tmp_path, 3, of=os.geteuid())
    (tmp_path / "n1.log").unlink()
    (tmp_path / "n1.log").write_text("of a third user\n")
    assert text(worker_output.last_lines(tmp_path, 3, of=os.geteuid() + 1)) == {"n1": ""}


def test_users_are_known_by_number() -> None:
    assert worker_output.owner(user_name()) == os.geteuid()
    assert worker_output.owner("4242424") == 4242424, "an account without a name"
    with pytest.raises(BftrainerError, match="does not know the user 'no-such-user'"):
        worker_output.owner("no-such-user")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n1.log").write_text("x\n")

    def refuse(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(worker_output, "open_regular", refuse)
    with pytest.raises(BftrainerError, match=r"n1\.log: it is not yours to read"):
        worker_output.last_lines(tmp_path, 3, of=OWN)


def test_a_line_without_end_is_shown_piece_by_piece(tmp_path: Path) -> None:
    (tmp_path / "n1.log").write_bytes(b"x" * (worker_output.MAX_BYTES + 5))
    (part,) = worker_output.added(tmp_path, {}, of=OWN).values()
    assert (len(part.text), part.end) == (worker_output.MAX_BYTES, worker_output.MAX_BYTES)
    (rest,) = worker_output.added(tmp_path, {"n1": part.end}, of=OWN).values()
    assert (rest.text, rest.end) == ("", part.end)


@pytest.mark.parametrize("name", ["a\0b", "a" * 300, "file/x", "loop"])
def test_a_folder_that_is_none_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BftrainerError, match=r": [A-Za-z]"):
        worker_output.last_lines(tmp_path / name, 5, of=OWN)


def test_lines_of_all_nodes_stand_by_time() -> None:
    """Lines without a time follow their node's last one; a clock that goes back changes no node's order."""
    told = {
        "n1": "2026-11-28 10:00:00 begins\nTraceback\n  x = 1\n2026-11-28 10:00:02,250 ends\n",
        "n2": "old\n2026-11-28T10:00:01.5 trains\n2026-11-28 09:00:00 odd\nlast",
        "n3": "never\n",
    }
    parts = {name: worker_output.LogPart(text, 0) for name, text in told.items()}
    assert [f"{name}: {line[:20]}" for name, line in worker_output.by_time(parts)] == [
        "n3: never",
        "n1: 2026-11-28 10:00:00 ",
        "n1: Traceback",
        "n1:   x = 1",
        "n2: old",
        "n2: 2026-11-28T10:00:01.",
        "n2: 2026-11-28 09:00:00 ",
        "n2: last",
        "n1: 2026-11-28 10:00:02,",
    ]
