"""The local scheduler where GPUs are shared out: each is a place of its own, with a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.daemon.process.compose import compose
from bftrainer.errors import BftrainerError
from bftrainer.model.events import NodesChanged
from bftrainer.schedulers.local.gpus import CUDA, one_by_one
from bftrainer.schedulers.local.make import gpus_shared, read
from bftrainer.schedulers.shared.context import PlayedLog
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore

GENERATED = PlayedLog(path=None, nodes=2, speed=1.0, seed=0, begin=None, gpus=2)


def test_each_gpu_has_one_of_its_nodes_devices() -> None:
    assert one_by_one({"a": {CUDA: "4,7"}}, 2) == {"a:0": {CUDA: "4"}, "a:1": {CUDA: "7"}}


def test_nodes_of_a_generated_log_come_and_go_with_their_gpus() -> None:
    names, _, _, changes = read(GENERATED, 2)
    assert names == {"n01:0", "n01:1", "n02:0", "n02:1"}
    for change, _ in zip(changes, range(20), strict=False):
        for gpus in (change.joined, change.left):
            assert {gpu.replace(":1", ":0") for gpu in gpus} == {g for g in gpus if g.endswith(":0")}
            assert len(gpus) % 2 == 0


def test_a_log_may_name_gpus_and_nodes(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n0,10,a:1\n0,5,b\n0,5,c\n")
    names, _, _, changes = read(PlayedLog(path=log, nodes=2, speed=1.0, seed=0, begin=None), 2)
    assert names == {"a:1", "b:0", "b:1"}, "of the first two nodes"
    assert list(changes)[1] == NodesChanged(time=5.0, left=frozenset({"b:0", "b:1"}), reason="log")


def test_what_is_shared_out() -> None:
    assert gpus_shared(Settings(share="node"), GENERATED) == 0
    assert gpus_shared(Settings(share="gpu", gpus_per_node=4), GENERATED) == 2


def test_slurm_refuses_without_parts_of_nodes(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "store.db")
    with pytest.raises(BftrainerError, match=r"share nodes with main jobs on Slurm\. Set harvest: gpus"):
        compose(Settings(share="gpu", scheduler="slurm"), store, GENERATED, print)
    store.close()
