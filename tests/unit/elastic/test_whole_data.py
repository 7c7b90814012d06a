"""Which loaders go through all of a data set whose content is known, so that ranks can be compared by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
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
    random_split,
)

from bftrainer.elastic.attach.checkpoints import JobState
from bftrainer.elastic.checks import replicas
from bftrainer.elastic.checks.whole_data import WholeData, mark_of, uneven

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


def split(seed: int) -> Any:
    return random_split(POINTS, [12, 4], generator=torch.Generator().manual_seed(seed))[0]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("shares", [False, True])
def test_a_data_set_that_ranks_share_is_compared_with_that_of_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, shares: bool, seed: int
) -> None:
    """A rank that reads a data set of its own may have another one on another number of ranks."""
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)

    def start(seed: int) -> str | None:
        found = WholeData()
        found.watch()
        monkeypatch.setattr(replicas, "_watched", SimpleNamespace(data=found))
        state = JobState(tmp_path, 1)
        state.load()
        sampler = DistributedSampler(split(seed), 2, 0) if shares else None
        loader = DataLoader(split(seed), batch_size=2, sampler=sampler)
        next(iter(loader))
        found.is_stepped()
        state.save({}, step=1, samples=2, epoch=0)
        return found.changed

    assert start(1) is None
    told = start(seed)
    assert ("indices is" in (told or "")) is (shares and seed == 2)


def test_what_was_known_of_the_data_is_kept_over_a_start_on_one_rank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for watched, shared in ((True, {"a": "[1]"}), (False, {}), (True, {"a": "[2]"})):
        found = WholeData()
        monkeypatch.setattr(replicas, "_watched", SimpleNamespace(data=found) if watched else None)
        state = JobState(tmp_path, 1)
        state.load()
        found.shared = shared
        state.save({}, step=1, samples=2, epoch=0)
    assert found.changed == "a is 2 here, 1 there"


def test_a_data_set_that_cannot_be_read_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    found, loader = WholeData(), DataLoader(Lazy(), batch_size=4)
    found.watch()
    next(iter(loader))
    with pytest.raises(OSError, match="no such folder"):
        mark_of(loader)
    found.is_stepped()
    assert found.mark == ""


def shared_by_accelerate(length: int, batch: int, ranks: int, **options: Any) -> Any:
    data_loader = pytest.importorskip("accelerate.data_loader")
    loader = DataLoader(Subset(POINTS, range(length)), batch_size=batch)
    return data_loader.prepare_data_loader(loader, num_processes=ranks, process_index=0, **options)


@pytest.mark.parametrize(
    ("length", "batch", "options", "said"),
    [
        (16, 4, {}, ""),
        (14, 4, {}, "has 6 samples, not 8: accelerate fills it up"),
        (14, 8, {"split_batches": True}, "has 6 samples, not 8: accelerate fills it up"),
        (14, 4, {"even_batches": False}, "has 6 samples, not 8: ranks have different numbers of them"),
    ],
)
def test_epochs_that_accelerate_does_not_share_evenly_are_told(
    length: int, batch: int, options: dict[str, bool], said: str
) -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    loader = shared_by_accelerate(length, batch, 2, **options)
    for each in (loader, accelerate.skip_first_batches(loader, 1)):
        assert said in uneven(getattr(each, "base_dataloader", each)) if said else not uneven(each)


@pytest.mark.parametrize(
    ("length", "batch", "skipped", "options", "said"),
    [
        (16, 4, 0, {}, ""),
        (14, 4, 0, {}, ""),  # the last step's 6 are shared out
        (13, 4, 0, {}, "has 5 samples, not 8: accelerate fills it up"),
        (13, 8, 0, {"split_batches": True}, "has 5 samples, not 8: accelerate fills it up"),
        (16, 4, 1, {}, "for each of the 2 ranks, and skip_first_batches leaves 1 of the loader out"),
        (16, 8, 1, {"split_batches": True}, ""),
    ],
)
def test_batches_that_accelerate_dispatches_are_told_where_samples_come_twice(
    length: int,
    batch: int,
    skipped: int,
    options: dict[str, bool],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    loader = shared_by_accelerate(length, batch, 2, dispatch_batches=True, put_on_device=True, **options)
    loader = accelerate.skip_first_batches(loader, skipped) if skipped else loader
    monkeypatch.setattr(loader, "state", SimpleNamespace(num_processes=2))  # it takes those of the process
    loader.begin()  # as its iterator does first
    told = uneven(loader.base_dataloader)
    loader.end()
    assert said in told if said else not told


def test_samples_that_a_distributed_sampler_takes_twice_are_told() -> None:
    samplers = [DistributedSampler(POINTS, ranks, 0) for ranks in (2, 3)]
    none, told = (uneven(DataLoader(POINTS, sampler=each)) for each in samplers)
    assert not none
    assert "an epoch of 16 samples is no multiple of 3 ranks: DistributedSampler takes 2 of them" in told
    left_out = DistributedSampler(POINTS, 3, 0, drop_last=True)
    assert not uneven(DataLoader(POINTS, sampler=left_out))
