"""Checkpoints survive the death of the process that writes them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bftrainer.elastic.state.checkpoint import KEEP, CheckpointError, Checkpoints
from bftrainer.elastic.state.training_state import TrainingState

WRITER = """
import sys, torch
from bftrainer.elastic.state.checkpoint import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
for step in range(1, 10_000):
    state = {"x": torch.full((4_000_000,), float(step))}
    checkpoints.save({"format": 1, "position": {"step": step}, "parts": {"model": state}}, 3)
"""


def snapshot(step: int) -> dict[str, object]:
    return {"format": 1, "position": {"step": step}, "parts": {}}


def test_a_crash_in_mid_write_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    end = time.monotonic() + 120
    while not (list(tmp_path.glob("g*.pt")) and any(p.stat().st_size for p in tmp_path.glob(".g*"))):
        assert time.monotonic() < end
        assert writer.poll() is None
    writer.kill()
    writer.wait()
    assert list(tmp_path.glob(".g*")), "killed while it wrote"
    (complete, *older) = sorted(tmp_path.glob("g*.pt"))[::-1]
    assert len(older) < KEEP + 1
    by_hand = torch.load(complete, weights_only=True)
    found = Checkpoints(str(tmp_path)).load()
    assert found is not None
    assert found["position"] == by_hand["position"]
    assert bool((found["parts"]["model"]["x"] == float(found["position"]["step"])).all())
    assert not list(tmp_path.glob(".g*")), "what was half-written is cleared away"


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bool] = []
    monkeypatch.setattr("os.fsync", lambda fd: flushed.append(not list(tmp_path.glob("g*.pt"))))
    assert Checkpoints(str(tmp_path)).save(snapshot(1), 1)
    assert flushed == [True]


def test_a_folder_that_others_exchange_meanwhile_leads_to_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, private = tmp_path / "checkpoints", tmp_path / "private"
    private.mkdir()
    names = [f"g00000001-s{step:012}.pt" for step in range(KEEP + 1)]
    for name in names:
        (private / name).write_text("mine")

    def exchange(_: int) -> None:
        folder.rename(tmp_path / "before")
        folder.symlink_to(private)

    monkeypatch.setattr("os.fsync", exchange)
    assert Checkpoints(str(folder)).save(snapshot(7), 2)
    assert sorted(path.name for path in private.iterdir()) == names
    assert [path.name for path in (tmp_path / "before").glob("g*")] == ["g00000002-s000000000007.pt"]


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_what_others_put_in_the_place_of_the_mark_is_told_and_nothing_waits_for_it(
    tmp_path: Path, kind: str
) -> None:
    mark = tmp_path / ".trainer.json"
    if kind == "pipe":
        os.mkfifo(mark)
    elif kind == "device":
        mark.symlink_to("/dev/zero")
    else:
        mark.write_text(" " * 5_000)
    checkpoints = Checkpoints(str(tmp_path))
    assert not checkpoints.save(snapshot(1), 1)
    assert "regular file" in checkpoints.error or "4 kB" in checkpoints.error


def test_links_of_others_in_the_folder_lead_to_no_other_file(tmp_path: Path) -> None:
    """Whoever may write to the folder of a spec can put a link there under the name of what comes next."""
    folder, other = tmp_path / "shared", tmp_path / "notes"
    folder.mkdir()
    other.write_text("mine")
    for name in (".g00000001-s000000000001.pt", ".trainer.json"):
        (folder / f"{name}.{os.getpid()}").symlink_to(other)
    assert Checkpoints(str(folder)).save(snapshot(1), 1)
    assert other.read_text() == "mine"
    assert Checkpoints(str(folder)).load() == snapshot(1)
    assert not any(path.is_symlink() for path in folder.iterdir())


def test_the_newest_that_can_be_read_counts_and_old_ones_go(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    for step in range(5):
        assert checkpoints.save(snapshot(step), 1)
    assert checkpoints.save(snapshot(2), 2), "a later generation is newer, whatever its step"
    assert len(list(tmp_path.glob("*.pt"))) == KEEP
    newest = max(tmp_path.glob("*.pt"))
    newest.write_bytes(newest.read_bytes()[:100])
    found = checkpoints.load()
    assert found is not None
    assert found["position"]["step"] == 4
    for path in tmp_path.glob("*.pt"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"Mend them, or move them away.*BFT-195"):
        checkpoints.load()


def test_a_trainer_that_goes_on_in_anothers_folder_saves_newer_checkpoints(tmp_path: Path) -> None:
    first = Checkpoints(str(tmp_path), "/w/.bftrainer/1-a-x")
    assert first.save(snapshot(100), 57), "its members have changed often"
    second = Checkpoints(str(tmp_path), "/w/.bftrainer/2-a-x")
    assert second.load() == snapshot(100)
    assert second.save(snapshot(150), 1) and second.save(snapshot(200), 2)
    newcomer = Checkpoints(str(tmp_path), "/w/.bftrainer/2-a-x")  # rank 0 now, and has loaded nothing
    assert newcomer.save(snapshot(250), 3)
    assert Checkpoints(str(tmp_path), "/w/.bftrainer/2-a-x").load() == snapshot(250)
    assert second.save(snapshot(260), 2), "a stray of an older generation"
    assert first.save(snapshot(270), 57), "a stray of the trainer before"
    assert Checkpoints(str(tmp_path)).load() == snapshot(250), "by hand"


def test_a_script_by_hand_goes_on_from_a_trainers_checkpoints(tmp_path: Path) -> None:
    assert Checkpoints(str(tmp_path), "/w/1").save(snapshot(100), 57)
    for step in (150, 200):
        by_hand = Checkpoints(str(tmp_path))
        assert by_hand.load() is not None
        assert by_hand.save(snapshot(step), 0)
    assert Checkpoints(str(tmp_path), "/w/2").load() == snapshot(200)


def test_a_checkpoint_can_be_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Checkpoints(str(tmp_path), "/w/1").save(snapshot(100), 3)

    def refuse(self: Path, text: str) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert Checkpoints(str(tmp_path), "/w/2").load() == snapshot(100)


@pytest.mark.timeout(60)
def test_a_pipe_with_the_name_of_a_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    assert checkpoints.save(snapshot(3), 1)
    os.mkfifo(tmp_path / "g00000009-s000000000009.pt")
    assert checkpoints.load() == snapshot(3)


def test_a_mark_that_is_none_is_written_anew(tmp_path: Path) -> None:
    assert Checkpoints(str(tmp_path), "/w/1").save(snapshot(100), 3)
    for text in ("", "[]", '{"trainer": "/w/1", "base": null}'):
        (tmp_path / ".trainer.json").write_text(text)
        assert Checkpoints(str(tmp_path), "/w/1").load() == snapshot(100)


def test_a_disk_that_cannot_be_written_is_told_and_no_end(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checkpoints = Checkpoints(str(tmp_path / "file"))
    assert not checkpoints.save(snapshot(1), 1)
    assert str(tmp_path / "file") in checkpoints.error


def test_a_snapshot_stays_as_it_was() -> None:
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = TrainingState({"model": model, "optimizer": optimizer})
    before = model.weight.detach().clone()
    first = state.snapshot()["parts"]["model"]["weight"]
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert torch.equal(first, before)
