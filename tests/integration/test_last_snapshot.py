"""A state of 80 MB and a slow disk: its newest snapshot is written, however its worker and its pilot end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.agents_desk import Desk, at

SCRIPT = """
import os, signal, sys, time
import torch
from bftrainer import elastic
from bftrainer.elastic.snapshots import memory
from bftrainer.elastic.snapshots.saver import Saver

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.few, self.many = (torch.nn.Parameter(torch.zeros(n)) for n in (1_000, 10_000_000))
    def forward(self, x):
        return sum(p.sum() / 1 for p in self.parameters()) * x.mean()

def torn(saver, image, slot):
    "A copy in the middle of which this process is killed, if it is the second."
    if Saver.copies:
        half = type(image)(image.nbytes, image.around, image.tensors[: len(image.tensors) // 2])
        copy(saver, half, slot)
        os.kill(os.getpid(), signal.SIGKILL)
    Saver.copies += 1
    copy(saver, image, slot)

if "torn" in sys.argv:
    Saver.copies, copy, Saver._copy = 0, Saver._copy, torn
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
run = elastic.Run(model, optimizer, torch.ones(64), batch_size=8)
for x in run:
    run.backward(run.model(x))
    run.step()
"""
SLOW_AGENT = """
import sys, time
from bftrainer.agent.files import checkpoints

def slow(file, memory, start, stop, fast=checkpoints.write_chunk):
    size = fast(file, memory, start, stop)
    time.sleep(size / RATE)
    return size

checkpoints.write_chunk, checkpoints.CHUNK = slow, 1 << 20
sys.argv[0] = "agent"
import bftrainer.agent.__main__
"""
MB = 1_000_000
NBYTES = 80 * MB


class Pilot:
    """An agent in a process of its own, whose disk is slow, and its worker, the only member of trainer 1."""

    def __init__(self, desk: Desk, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._desk, self.process, self.folder = desk, process, folder

    def start(self, *arguments: str, every_s: float, write_s: float, grace_s: float) -> None:
        order: dict[str, Any] = {
            "type": "start",
            "trainer": 1,
            "generation": 1,
            "workers": 1,
            "delay_s": 0,
            "gated": False,
            "command": ["python", "train.py", *arguments],
            "workdir": str(self.folder),
            "env": {},
            "log": str(self.folder / "t" / "n.log"),
            "warm": False,
            "grace_s": grace_s,
            "write_s": write_s,
        }
        worker = {
            "samples": None,
            "checkpoint_dir": str(self.folder / "saved"),
            "checkpoint_every_s": every_s,
        }
        self._desk.hub.send("n", {**order, "worker": worker})

    def regroup(self, generation: int, grace_s: float = 0.0, *members: str) -> None:
        leaving = [] if members else ["n"]
        about = {"type": "regroup", "trainer": 1, "generation": generation, "grace_s": grace_s}
        self._desk.hub.send("n", {**about, "members": list(members), "leaving": leaving})

    def said(self, kind: str) -> list[dict[str, Any]]:
        """What it has said of a kind, itself or for its worker."""
        messages = [message for kind_, message in self._desk.reports if kind_ == "said"]
        messages = [message.get("said", message) for message in messages]
        return [message for message in messages if message["type"] == kind]

    async def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                assert self.process.returncode is None or condition(), (
                    self.folder / "t" / "n.log"
                ).read_text()
                await asyncio.sleep(0.01)

    async def trains(
        self, *arguments: str, every_s: float, write_s: float = 0.0, grace_s: float = 30.0
    ) -> None:
        """Have the worker train until it has reported a few steps."""
        await self.until(lambda: ("up", ("t-n", [])) in self._desk.reports)
        self.start(*arguments, every_s=every_s, write_s=write_s, grace_s=grace_s)
        await self.until(lambda: self.said("ready"))
        self.regroup(2, 0.0, "n")
        await self.until(lambda: any(message["step"] > 2 for message in self.said("progress")))

    def partial(self) -> list[Path]:
        return list(self.folder.glob("saved/.g*"))

    def newest(self) -> int:
        """The step of the newest checkpoint, all of which is of that step."""
        path = max(self.folder.glob("saved/g*.pt"))
        found = torch.load(path, weights_only=True)
        weight = velocity = 0.0
        for _ in range(found["position"]["step"]):
            velocity = 0.5 * velocity + 1.0
            weight -= 0.5 * velocity
        for tensor in found["parts"]["model"].values():
            assert tensor.min() == tensor.max() == pytest.approx(weight)
        for state in found["parts"]["optimizer"]["state"].values():
            buffer = state["momentum_buffer"]
            assert buffer.min() == buffer.max() == pytest.approx(velocity)
        assert not self.partial()
        step: int = found["position"]["step"]
        return step

    @property
    def pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (pid,) = [int(pid) for pid in children if b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return pid


def with_pilot(folder: Path, mb_s: float, story: Callable[[Pilot], Coroutine[Any, Any, None]]) -> None:
    """Tell a story of a pilot whose disk takes so many MB a second."""
    (folder / "train.py").write_text(SCRIPT)
    desk = Desk()

    async def whole() -> None:
        arguments = ("--node", "n", "--tag", "t-n", "--daemon", desk.address)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SLOW_AGENT.replace("RATE", str(mb_s * MB)), *arguments),
            stdin=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(desk.secret_of("t-n").encode() + b"\n")
        try:
            await story(Pilot(desk, process, folder))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    at(desk, whole, within_s=120.0)


def test_the_snapshot_of_a_worker_that_is_killed_is_written(tmp_path: Path) -> None:
    async def story(pilot: Pilot) -> None:
        await pilot.trains(every_s=0.3)
        await pilot.until(pilot.partial)
        os.kill(pilot.pid, signal.SIGKILL)
        await pilot.until(lambda: pilot.said("exited"))
        (end,) = pilot.said("exited")
        assert end["code"] == -signal.SIGKILL
        assert end["kept"] == pilot.newest() > 0
        assert pilot.newest() <= end["last"]["step"] + 100

    with_pilot(tmp_path, 40.0, story)


def test_a_snapshot_in_the_middle_of_which_a_worker_is_killed_is_never_written(tmp_path: Path) -> None:
    async def story(pilot: Pilot) -> None:
        await pilot.trains("torn", every_s=0.3)
        await pilot.until(lambda: pilot.said("exited"))
        (end,) = pilot.said("exited")
        assert end["code"] == -signal.SIGKILL
        (only,) = pilot.folder.glob("saved/g*.pt")
        assert end["kept"] == pilot.newest() == int(only.stem.rpartition("s")[2])

    with_pilot(tmp_path, 400.0, story)


@pytest.mark.parametrize("under_way", [False, True])
def test_the_last_step_is_written_when_a_pilot_is_told_to_end(tmp_path: Path, under_way: bool) -> None:
    async def story(pilot: Pilot) -> None:
        await pilot.trains(every_s=0.3 if under_way else 1e6, write_s=30.0)
        if under_way:
            await pilot.until(pilot.partial)
        pid = pilot.pid
        pilot.process.terminate()
        await pilot.until(lambda: not Path(f"/proc/{pid}").exists())
        assert pilot.process.returncode is None, "the worker is gone, and the agent writes what it has left"
        await asyncio.wait_for(pilot.process.wait(), 30)
        assert pilot.newest() >= max(message["step"] for message in pilot.said("progress"))
        assert all(message["step"] == pilot.newest() for message in pilot.said("left"))

    with_pilot(tmp_path, 10.0, story)  # 8 s


def test_a_pilot_ends_at_once_where_its_site_gives_no_time_to_write(tmp_path: Path) -> None:
    async def story(pilot: Pilot) -> None:
        await pilot.trains(every_s=0.3)
        await pilot.until(pilot.partial)
        pilot.process.terminate()
        began = time.monotonic()
        await asyncio.wait_for(pilot.process.wait(), 30)
        assert time.monotonic() - began < 3.0, "of 8 s for one snapshot"

    with_pilot(tmp_path, 10.0, story)


def test_the_last_step_of_a_trainer_that_is_cancelled_is_written_after_its_worker(tmp_path: Path) -> None:
    async def story(pilot: Pilot) -> None:
        await pilot.trains(every_s=0.3)
        await pilot.until(pilot.partial)
        pilot.regroup(3, 30.0)
        await pilot.until(lambda: pilot.said("left"))
        (left,) = pilot.said("left")
        assert left["step"] == pilot.newest(), "it has left when its state is written"
        await pilot.until(lambda: pilot.said("exited"))
        (end,) = pilot.said("exited")
        assert left["step"] == end["kept"]

    with_pilot(tmp_path, 40.0, story)


def test_what_a_disk_is_too_slow_for_is_told(tmp_path: Path) -> None:
    async def story(pilot: Pilot) -> None:
        await pilot.trains(every_s=1e6)
        pilot.regroup(3, 3.0)
        await pilot.until(lambda: pilot.said("exited"))
        (left,), (end,) = pilot.said("left"), pilot.said("exited")
        assert left["step"] > 2 and end["kept"] == 0
        assert not list(pilot.folder.glob("saved/g*.pt")) and not pilot.partial()

    with_pilot(tmp_path, 5.0, story)
