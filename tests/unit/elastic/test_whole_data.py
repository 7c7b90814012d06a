"""Which loaders go through all of a data set whose content is known, so that ranks can be compared by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
)

from bftrainer.elastic.checks.whole_data import WholeData, mark_of

POINTS = TensorDataset(torch.arange(64.0).reshape(16, 4))


class Lengths(Dataset[Any]):
    """Nothing is known of its content."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return index


class Lazy(Lengths):
    """Its files cannot be listed now."""

    def __init__(self) -> None:
        self.files = Broken()


class Broken(list[str]):
    def __len__(self) -> int:
        raise OSError("no such folder")


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("loader", "is_marked"),
    [
        (DataLoader(POINTS, batch_size=4), True),
        (DataLoader(POINTS, batch_size=4, shuffle=True), True),
        (DataLoader(Subset(POINTS, [3, 1]), batch_size=2), True),
        (DataLoader(POINTS, sampler=DistributedSampler(POINTS, 2, 0)), False),
        (DataLoader(POINTS, sampler=RandomSampler(POINTS, num_samples=4)), False),
        (DataLoader(POINTS, sampler=RandomSampler(POINTS, replacement=True)), False),
        (DataLoader(POINTS, batch_size=None), False),
        (DataLoader(Lengths(), batch_size=4), False),
        (DataLoader(Stream(), batch_size=4), False),
    ],
)
def test_a_loader_of_all_of_a_known_data_set_has_a_mark(loader: Any, is_marked: bool) -> None:
    assert bool(mark_of(loader)) == is_marked


def test_marks_are_those_of_the_content() -> None:
    same = TensorDataset(torch.arange(64.0).reshape(16, 4))
    other = TensorDataset(torch.arange(64.0).reshape(16, 4) + 1)
    marks = [mark_of(DataLoader(data, batch_size=4)) for data in (POINTS, same, other)]
    assert marks[0] == marks[1] != marks[2]


def test_the_loader_that_was_begun_before_the_first_step_is_that_of_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    found = WholeData()
    found.watch()
    first, train, later = (DataLoader(Subset(POINTS, [i, 2]), batch_size=1) for i in (0, 1, 3))
    assert len(list(first)) == 2
    batches = iter(train)
    next(batches)
    found.is_stepped()
    assert len(list(later)) == 2
    found.is_stepped()
    assert found.mark == mark_of(train) != mark_of(later)


def test_a_data_set_that_cannot_be_read_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    found, loader = WholeData(), DataLoader(Lazy(), batch_size=4)
    found.watch()
    next(iter(loader))
    with pytest.raises(OSError, match="no such folder"):
        mark_of(loader)
    found.is_stepped()
    assert found.mark == ""
