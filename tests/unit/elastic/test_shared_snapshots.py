"""Snapshots in shared memory: what is in the file, whose the memory is, and how much of it is taken."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bftrainer.elastic.snapshots import memory
from bftrainer.elastic.snapshots.image import image_of
from bftrainer.elastic.snapshots.memory import SharedMemory, free_bytes
from bftrainer.elastic.snapshots.saver import Saver
from bftrainer.elastic.state.checkpoint import Checkpoints
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState


class Agent:
    """The agent's end of a worker's channel: it keeps what it is told of snapshots."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.told.append({"type": kind, **fields})


@pytest.fixture
def slots() -> Iterator[tuple[int, int]]:
    fds = os.memfd_create("a"), os.memfd_create("b")
    yield fds
    for fd in fds:
        os.close(fd)


def state_of(dtype: torch.dtype = torch.float32) -> TrainingState:
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7)).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(4, 5, dtype=dtype)).square().mean().backward()
    optimizer.step()
    state = TrainingState({"model": model, "optimizer": optimizer})
    state.position = Position(step=7, samples=70)
    return state


def saver_of(state: TrainingState, folder: Path, slots: tuple[int, ...]) -> tuple[Saver, Agent]:
    agent = Agent()
    return Saver(state, Checkpoints(str(folder)), agent, slots), agent  # type: ignore[arg-type]


def read(fd: int, nbytes: int) -> bytes:
    return os.pread(fd, nbytes, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_memory_has_the_file_that_torch_would_have_written(
    tmp_path: Path, slots: tuple[int, int], dtype: torch.dtype
) -> None:
    state = state_of(dtype)
    saver, agent = saver_of(state, tmp_path, slots)
    saver.save(3, wait=False)
    (taken,) = agent.told
    assert (taken["file"], taken["step"]) == ("g00000003-s000000000007.pt", 7)
    mine, plain = read(slots[taken["slot"]], taken["bytes"]), io.BytesIO()
    torch.save(state.snapshot(), plain)
    assert len(mine) == len(plain.getvalue())
    ours, theirs = zipfile.ZipFile(io.BytesIO(mine)), zipfile.ZipFile(plain)
    names = ours.namelist()
    assert names == theirs.namelist()
    for info in ours.infolist():
        info.CRC = theirs.getinfo(info.filename).CRC  # torch reads none
    same = [name for name in names if not name.endswith("serialization_id")]  # it is made of them
    assert all(ours.read(name) == theirs.read(name) for name in same)
    found = torch.load(io.BytesIO(mine), weights_only=True)
    assert torch.equal(found["parts"]["model"]["0.weight"], state.parts["model"].state_dict()["0.weight"])


def test_what_has_no_elements_or_is_no_tensor_is_in_the_file_too() -> None:
    value = {"none": torch.empty(0), "view": torch.arange(12).reshape(3, 4).t(), "text": ["a", (1, None)]}
    image = image_of(value)
    whole = torch.zeros(image.nbytes, dtype=torch.uint8)
    for place, data in image.around:
        whole[place : place + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for place, tensor in image.tensors:
        whole[place : place + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    found = torch.load(io.BytesIO(whole.numpy().tobytes()), weights_only=True)
    assert found["none"].numel() == 0 and found["text"] == value["text"]
    assert torch.equal(found["view"], value["view"])  # type: ignore[arg-type]


def test_a_piece_that_the_agent_has_is_not_written_and_the_last_snapshot_has_the_other(
    tmp_path: Path, slots: tuple[int, int]
) -> None:
    state = state_of()
    saver, agent = saver_of(state, tmp_path, slots)
    saver.save(3, wait=False)
    first = agent.told[0]
    before = read(slots[first["slot"]], first["bytes"])
    assert saver.busy
    with torch.no_grad():
        state.parameters()[0].zero_()
    saver.save(3, wait=False)
    second = agent.told[1]
    assert {first["slot"], second["slot"]} == {0, 1}
    assert read(slots[first["slot"]], first["bytes"]) == before
    for taken in agent.told:
        saver.written({"slot": taken["slot"], "step": 7, "saved": True, "error": ""})
    assert not saver.busy and saver.saved == 7
    saver.written({"slot": 0, "step": 8, "saved": False, "error": "the disk is full"})
    assert (saver.saved, saver.error) == (7, "the disk is full")


@pytest.mark.parametrize("given", [True, False])
def test_without_memory_the_worker_writes_its_state_itself(
    tmp_path: Path, slots: tuple[int, int], monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: memory.SPARE)
    saver, agent = saver_of(state_of(), tmp_path, slots if given else ())
    saver.prepare()
    saver.save(3, wait=True)
    assert agent.told == [] and saver.saved == 7
    assert [path.name for path in tmp_path.glob("g*.pt")] == ["g00000003-s000000000007.pt"]


def test_memory_is_pinned_once_and_grows(slots: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Cuda:
        def cudaHostRegister(self, start: int, size: int, flags: int) -> int:  # noqa: N802
            said.append(f"pins {size >> 20}")
            return 0

        def cudaHostUnregister(self, start: int) -> int:  # noqa: N802
            said.append("lets go")
            return 0

    monkeypatch.setattr(memory, "_cuda", Cuda)
    shared = SharedMemory(slots[0])
    for _ in range(2):
        shared.prepare(10, pinned=True)
    shared.of(10).fill_(3)
    assert shared.of(3 << 20)[:10].tolist() == [3] * 10, "what was in it is still there"
    assert said == ["pins 2", "lets go"]


def test_memory_that_a_control_group_does_not_give_is_not_free(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    assert free_bytes(proc, groups) == 1 << 60, "nothing is known"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 4000 kB\n")
    (proc / "self" / "cgroup").write_text("4:cpu,memory:/job/step\n0::/job/step\n")
    assert free_bytes(proc, groups) == 4_096_000
    for folder, limit in (("job", "2000000"), ("job/step", "max")):
        (groups / folder).mkdir(parents=True)
        (groups / folder / "memory.max").write_text(limit)
        (groups / folder / "memory.current").write_text("1500000")
        (groups / folder / "memory.stat").write_text("anon 7\ninactive_file 100000\n")
    assert free_bytes(proc, groups) == 600_000, "the group above bounds it"
    (groups / "memory" / "job").mkdir(parents=True)
    (groups / "memory" / "job" / "memory.limit_in_bytes").write_text("1000")
    (groups / "memory" / "job" / "memory.usage_in_bytes").write_text("400")
    (groups / "memory" / "job" / "memory.stat").write_text("total_inactive_file 10\n")
    assert free_bytes(proc, groups) == 610
