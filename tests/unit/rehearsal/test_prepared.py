"""What a rehearsal prepares: copies of the script's folder, and runs that fit the spec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from bftrainer.errors import BftrainerError
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import TrainerSpec
from bftrainer.rehearsal import runs, scratch, tried
from bftrainer.rehearsal.files import files_of


def spec(folder: Path, **changed: object) -> TrainerSpec:
    about = {"name": "a", "command": ("python", f"{folder}/a.py"), "n_min": 1, "n_max": 4}
    return TrainerSpec(**{**about, "workdir": str(folder), **changed})  # type: ignore[arg-type]


def test_a_copy_tells_what_was_written_into_it_and_the_folder_stays_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "data").mkdir(parents=True)
    (source / ".git").mkdir()
    for name in ("a.py", "data/x.csv", "old.log", ".git/config"):
        (source / name).write_text(name)
    copied = scratch.copy(source, tmp_path / "copy")
    assert not list(copied.written())
    assert not (copied.folder / ".git").exists()
    (copied.folder / "old.log").write_text("more")
    (copied.folder / "out").mkdir()
    (copied.folder / "out" / "final.pt").touch()
    assert list(map(str, copied.written())) == ["old.log", "out/final.pt"]
    assert (source / "old.log").read_text() == "old.log"


def test_paths_in_a_checkpoint_are_told_from_its_runs_folder(tmp_path: Path) -> None:
    """As those of the best checkpoints, by which Lightning's callback names their scores."""
    (tmp_path / "source").mkdir()
    copies = {name: scratch.copy(tmp_path / "source", tmp_path / name) for name in ("alone", "other")}
    for each in copies.values():
        best = f"{each.folder}/best.ckpt"
        torch.save({"scores": {best: 0.5}, "best": best}, each.folder / "last.ckpt")
    found = files_of(copies)
    assert found["alone"]["last.ckpt"] == found["other"]["last.ckpt"]
    assert (found["alone"]["last.ckpt"].entries or {})["best"] == "./best.ckpt"


def test_pipes_and_sockets_of_the_folder_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("x\n")
    os.mkfifo(folder / "pipe")
    copied = scratch.copy(folder, tmp_path / "copy")
    assert [path.name for path in copied.folder.iterdir()] == ["train.py"]


def test_what_the_user_cannot_read_is_linked_so_that_the_script_meets_it_as_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    (folder / "theirs").mkdir(parents=True)
    (folder / "data").mkdir()
    for name in ("train.py", "theirs/x", "data/closed", "data/open"):
        (folder / name).touch()
    closed = {folder / "theirs", folder / "data" / "closed"}  # root, who may run this, can read all
    can = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in closed and can(path, mode))
    copied = scratch.copy(folder, tmp_path / "copy")
    links = {path.readlink() for path in copied.folder.rglob("*") if path.is_symlink()}
    assert links == closed
    assert not list(copied.written())


def test_large_files_of_data_are_linked_and_large_outputs_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("data.bin", "model.pt"):
        (source / name).write_bytes(b"x" * 100)
    monkeypatch.setattr(scratch, "LARGE", 10)
    copied = scratch.copy(source, tmp_path / "copy").folder
    assert (copied / "data.bin").is_symlink()
    assert not (copied / "model.pt").is_symlink()
    monkeypatch.setattr(scratch, "MOST", 50)
    with pytest.raises(BftrainerError, match="workdir"):
        scratch.copy(source, tmp_path / "another")


@pytest.mark.parametrize(
    ("allowed", "sizes"),
    [
        ({}, (2, 3)),
        ({"n_max": 2}, (2, 2)),
        ({"n_max": 1}, (1, 1)),
        ({"sizes": AllowedSizes(multiple_of=2)}, (2, 4)),
    ],
)
def test_runs_are_on_sizes_that_the_spec_allows(
    tmp_path: Path, allowed: dict[str, object], sizes: tuple[int, int]
) -> None:
    wanted = spec(tmp_path, **allowed)
    assert runs.sizes(wanted) == sizes
    names = [plan.name for group in runs.others(wanted, 40, None) for plan in group]
    assert (runs.JOINED in names) is (sizes[0] > 1)


@pytest.mark.parametrize("length", range(1, 200, 7))
def test_what_happens_in_a_run_happens_within_its_steps_and_one_after_the_other(
    tmp_path: Path, length: int
) -> None:
    by_name = {plan.name: plan for group in runs.others(spec(tmp_path), length, None) for plan in group}
    stops = by_name[runs.RESUMED].stops
    assert all(0 < step < length for step in stops)
    assert list(stops) == sorted(set(stops))
    changes = by_name[runs.JOINED]
    moments = [changes.joins_after, *(step for step, _ in changes.directions.kills)]
    assert moments == sorted(set(moments))
    assert moments[-1] <= max(length, 1)
    if length >= 20:  # where a script that does something every k steps has just done it, it loses nothing
        assert all(step % every for step in (*stops, *moments) for every in range(2, 11))


def test_a_request_runs_in_the_copy_with_all_nodes_and_as_many_samples(tmp_path: Path) -> None:
    wanted = spec(tmp_path, env=(("OUT", f"{tmp_path}/out"),), batch=())
    plan = runs.RunPlan(name="several", title="", nodes=2, batch=24)
    written = {"name": "a", "nodes": 4, "gpus": None, "launcher": "torchrun", "weight": 3.0}
    body = runs.request(written, wanted, plan, Path("/scratch/work"), {"REHEARSAL": "/scratch"})
    assert body["command"] == ["python", "/scratch/work/a.py"]
    assert body["env"] == {"OUT": "/scratch/work/out", "REHEARSAL": "/scratch"}
    assert body["nodes"] == {"min": 2, "max": 2, "workers": 1}
    assert body["batch"] == {"global": 24}
    assert body["partial"] is False
    assert "weight" not in body
    assert "batch" not in runs.request(
        written, spec(tmp_path, batch=(("global", 8),)), plan, Path("/scratch"), {}
    )


def test_the_hint_comes_once_and_hinders_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    wanted = spec(tmp_path)
    assert "bftrainer try a.yaml" in tried.hint(wanted, Path("a.yaml"))
    assert not tried.hint(wanted, Path("a.yaml"))
    assert not tried.hint(spec(tmp_path, n_max=1, command=("python", "b.py")), Path("b.yaml"))
    other = spec(tmp_path, command=("python", "c.py"))
    tried.note(other)
    assert not tried.hint(other, Path("c.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert tried.hint(wanted, Path("a.yaml"))
