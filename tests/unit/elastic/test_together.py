"""What ranks tell each other is plain: nothing that another rank sends is run."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch.multiprocessing.spawn import start_processes

from bftrainer.elastic.attach import collectives
from bftrainer.elastic.attach.collectives import exchanged, highest


class Run:
    """A pickle of it makes a folder where it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def test_a_process_alone_has_its_own_value() -> None:
    assert exchanged({"a": [1.5]}) == [{"a": [1.5]}]


def test_a_rank_that_sends_a_pickle_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    start_processes(rank, (str(tmp_path),), nprocs=2, start_method="spawn")
    assert (tmp_path / "values").read_text() == "[['rank', 0, nan], ['longer than that', 1, nan]]"
    assert (tmp_path / "large").read_text().startswith("a rank's value has 1000 bytes, and at most 100 are ")
    assert not (tmp_path / "owned").exists()


def rank(number: int, folder: str) -> None:
    """One of two processes; the other one is a stranger that has joined as rank 1."""
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=number, world_size=2)
    values = exchanged(["rank" if not number else "longer than that", number, float("nan")])
    if number:
        for said in (pickle.dumps(Run(f"{folder}/owned")), b" " * 1000):
            answer(said)
        while not Path(folder, "large").exists():  # the other one still receives what was sent
            time.sleep(0.01)
        os._exit(0)  # PyTorch 2.6's destroy_process_group may wait for a thread that needs the GIL it holds
    Path(folder, "values").write_text(str(values))
    with pytest.raises(ValueError):
        exchanged("mine")
    collectives.MOST_BYTES = 100
    with pytest.raises(ValueError, match="at most") as large:
        exchanged("mine")
    Path(folder, "large").write_text(str(large.value))
    os._exit(0)


def answer(said: bytes) -> None:
    """What a stranger does in place of `exchanged`."""
    [most] = highest([len(said)])
    if len(said) == 1000:  # the other one goes no further
        return
    mine = torch.frombuffer(bytearray(said.ljust(most)), dtype=torch.uint8)
    dist.all_gather([torch.empty_like(mine) for _ in range(2)], mine)
