"""A node whose data set is not that of the others, or of the checkpoint, stops before it trains on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

from bftrainer import elastic
from bftrainer.elastic.checks.same_data import PART, SameData
from bftrainer.elastic.loop.observers import ReplicasDiffer
from bftrainer.elastic.state.training_state import TrainingState


class Files(Dataset[int]):
    """As many data sets of images are: a list of (file, label), and what each node may have of its own."""

    def __init__(self, order: list[int], folder: str = "/data") -> None:
        self.samples = [(f"{folder}/{i}.png", i % 3) for i in order]
        self.root = folder
        self._opened = [folder]
        self.cache = [folder]
        self.weights = np.linspace(0.0, 1.0, 7)

    def __len__(self) -> int:
        return len(self.samples)


class Stream(IterableDataset[int]):
    def __init__(self, shards: list[str]) -> None:
        self.shards = shards

    def __iter__(self) -> Iterator[int]:
        yield 1


def numbers(first: float = 0.0) -> TensorDataset:
    x = torch.arange(200.0).reshape(100, 2)
    x[0, 0] = first
    return TensorDataset(x, torch.arange(100) % 7)


def split(seed: int) -> Subset[Any]:
    return random_split(numbers(), [80, 20], generator=torch.Generator().manual_seed(seed))[0]


def exchanged(theirs: Any, mine: Any, *, trainers: tuple[int, int] = (1, 1), **options: Any) -> None:
    SameData(mine, trainers[1], **options).load_state_dict(SameData(theirs, trainers[0]).state_dict())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (split, r"data set\.indices"),
        (lambda seed: DataLoader(split(seed), batch_size=4), r"data set\.indices"),
        (lambda seed: ConcatDataset([numbers(), split(seed)]), r"data set\.datasets\[1\]\.indices"),
        (lambda seed: Subset(split(seed), range(5)), r"data set\.dataset\.indices"),
        (lambda seed: TensorDataset(torch.arange(100.0)[split(seed).indices]), r"data set\.tensors\[0\]"),
        (lambda seed: np.random.default_rng(seed).permutation(100), "data set is"),
        (lambda seed: [*split(seed).indices], "data set is"),
        (lambda seed: Files([*split(seed).indices]), r"data set\.samples"),
        (lambda seed: [*range(90 + seed)], "data set is"),
        (lambda seed: Stream([f"{i}.tar" for i in split(seed).indices]), r"data set\.shards"),
    ],
)
def test_what_differs_is_named_and_what_is_alike_is_not(make: Callable[[int], Any], words: str) -> None:
    exchanged(make(0), make(0))
    with pytest.raises(ReplicasDiffer, match=words):
        exchanged(make(0), make(1))
    exchanged(make(0), make(1), may_differ=["data*"])


def test_nodes_may_have_folders_of_their_own_and_round_in_their_own_way() -> None:
    exchanged(Files([1, 2, 3], "/scratch/node1/x"), Files([1, 2, 3], "/scratch/node2"))
    exchanged(numbers(), numbers(1e-4))
    exchanged(numbers(float("nan")), numbers(float("nan")))
    with pytest.raises(ReplicasDiffer):
        exchanged(numbers(), numbers(9.0))


def test_another_trainer_may_go_on_with_other_data(capsys: pytest.CaptureFixture[str]) -> None:
    exchanged(split(0), split(1), trainers=(1, 2))
    assert "is not the one of the trainer" in capsys.readouterr().err


def test_a_checkpoint_has_it_and_one_of_before_does_without(caplog: pytest.LogCaptureFixture) -> None:
    def state(seed: int) -> TrainingState:
        model = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        return TrainingState({"model": model, "optimizer": sgd, PART: SameData(split(seed), 1)})

    saved = state(0).snapshot()
    state(0).restore(saved)
    with pytest.raises(ReplicasDiffer, match="a split or an order a seed"):
        state(1).restore(saved)
    del saved["parts"][PART]
    state(1).restore(saved)
    assert not caplog.messages


def test_a_large_data_set_is_compared_by_a_few_entries(tmp_path: Path) -> None:
    large = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(1000, 1000))
    said = SameData(TensorDataset(torch.from_numpy(large)), 1).state_dict()
    assert 100 < len(str(said)) < 5000


def test_a_run_compares_its_data_unless_it_may_differ() -> None:
    def run_of(seed: int, **options: Any) -> elastic.Run:
        model = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        return elastic.Run(model, sgd, split(seed), batch_size=4, **options)

    saved = run_of(0)._parts.state.snapshot()
    with pytest.raises(ReplicasDiffer, match=r"data set\.indices"):
        run_of(1)._parts.state.restore(saved)
    run_of(1, may_differ=[PART])._parts.state.restore(saved)
