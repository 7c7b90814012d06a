"""The order in which Hugging Face's Trainer reads its training data, at the start and when it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler

from bftrainer.elastic.frameworks.huggingface.order import begin_epoch, length_of, order_of

data_loader = pytest.importorskip("accelerate.data_loader")
SAMPLES, RANKS = 24, 2


class Own(Sampler[int]):
    """A sampler of a script's own, whose order follows from the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take this epoch's order."""
        self.epoch = epoch

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch)).tolist())


def prepared(loader: DataLoader[int], **options: Any) -> Any:
    """The loader of the first of two ranks, as accelerate makes it."""
    return data_loader.prepare_data_loader(loader, num_processes=RANKS, process_index=0, **options)


def rest(loader: Any, epoch: int, batches: int) -> list[list[int]]:
    """What Hugging Face's Trainer reads of an epoch within which it goes on."""
    begin_epoch(loader, epoch)
    left = data_loader.skip_first_batches(loader, batches)
    left.set_epoch(epoch)
    return [batch.tolist() for batch in left]


def test_a_sampler_of_the_scripts_own_goes_on_in_its_epochs_order() -> None:
    loader = prepared(DataLoader(range(SAMPLES), batch_size=2, sampler=Own()))  # type: ignore[arg-type]
    whole = Own()
    whole.set_epoch(3)
    batches = [*BatchSampler(whole, 2, drop_last=False)]
    assert rest(loader, 3, 2) == batches[2 * RANKS :: RANKS]


def test_an_order_is_that_of_the_checkpoint_whatever_the_script_has_seeded() -> None:
    orders = []
    for seed, before in ((1, None), (2, 1), (2, None)):
        torch.manual_seed(seed)
        loader = DataLoader(range(SAMPLES), batch_size=2, sampler=RandomSampler(range(SAMPLES)))  # type: ignore[arg-type]
        ours = prepared(loader, use_seedable_sampler=True)
        assert order_of(ours, before) == (before or seed)
        orders.append(rest(ours, 1, 2))
    assert orders[0] == orders[1] != orders[2]


def test_a_streams_length_is_that_of_all_ranks() -> None:
    class Stream(IterableDataset[int]):
        def __len__(self) -> int:
            return SAMPLES

        def __iter__(self) -> Iterator[int]:
            return iter(range(SAMPLES))

    loader = prepared(DataLoader(Stream(), batch_size=2))
    assert len(loader.dataset) != SAMPLES
    assert length_of(loader) == SAMPLES


def test_an_epoch_has_the_samples_that_the_sampler_takes() -> None:
    few = RandomSampler(range(SAMPLES), num_samples=6)  # type: ignore[arg-type]
    assert length_of(prepared(DataLoader(range(SAMPLES), batch_size=2, sampler=few))) == 6  # type: ignore[arg-type]
