"""The GPUs of the local scheduler's nodes: this machine's where they suffice, else simulated ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bftrainer.daemon.clock import WallClock
from bftrainer.schedulers.local.gpus import CUDA, SIMULATED, gpus_here, shared_out
from bftrainer.schedulers.local.make import make
from bftrainer.schedulers.shared.context import Context, PlayedLog
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore


def test_each_node_has_gpus_of_its_own() -> None:
    found = shared_out({"n10", "n2"}, 2, ["0", "1", "5", "7", "8"])
    assert found == {"n2": {CUDA: "0,1"}, "n10": {CUDA: "5,7"}}


def test_where_there_are_too_few_they_are_simulated() -> None:
    found = shared_out({"a", "b"}, 2, ["0", "1", "2"])
    assert found == {n: {SIMULATED: "0,1", CUDA: "", "HIP_VISIBLE_DEVICES": ""} for n in "ab"}, "on the CPU"


def test_nodes_have_none_unless_they_are_asked_for() -> None:
    assert shared_out({"a"}, 0, ["0", "1"]) == {"a": {SIMULATED: ""}}


def test_the_gpus_of_this_machine(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert gpus_here({}, tmp_path) == ["2", "10"]
    assert gpus_here({CUDA: "3, GPU-1"}, tmp_path) == ["3", "GPU-1"]
    assert gpus_here({CUDA: ""}, tmp_path) == gpus_here({CUDA: "-1"}) == gpus_here({}, tmp_path / "no") == []


def test_a_poll_shows_how_many_each_node_has(tmp_path: Path) -> None:
    log = PlayedLog(path=None, nodes=2, speed=1.0, seed=0, begin=None, gpus=3)

    async def polled(own: Settings) -> set[int]:
        store = SqlStore(tmp_path / "store.db")
        context = Context(settings=own, store=store, clock=WallClock(), agents_at="a", log=log, say=print)
        local = make(context)
        try:
            return {node.gpus for node in (await local.poll()).nodes}
        finally:
            await local.close()
            store.close()

    assert asyncio.run(polled(Settings(state_dir=tmp_path))) == {3}
    assert asyncio.run(polled(Settings(state_dir=tmp_path, share="gpu"))) == {1}
