"""Training data that is another one on some rank, or after a restart, is told of under torchrun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset, random_split

from bftrainer.elastic.frameworks import data_check
from bftrainer.elastic.frameworks.data_check import warn_of_other_data


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(data_check, "note_warning", found.append)
    return found


def split(seed: int) -> Any:
    data = TensorDataset(torch.arange(50.0))
    return random_split(data, [40, 10], generator=torch.Generator().manual_seed(seed))[0]


class Column:
    """Rows of a table, as those of pyarrow are asked for them."""

    def __init__(self, seed: int) -> None:
        self.rows = np.random.default_rng(seed).permutation(50)

    def column(self, _: int) -> Any:
        return self

    def to_numpy(self) -> Any:
        return self.rows


class Table:
    """As a data set of Hugging Face after a split."""

    def __init__(self, seed: int) -> None:
        self._indices = Column(seed)

    def __len__(self) -> int:
        return 50


class Samples(list[Any]):
    """As a list of a tokenizer's results."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        super().__init__({"ids": one} for one in torch.randint(99, (50, 8), generator=generator))


@pytest.mark.parametrize("kind", [split, Table, Samples])
def test_other_data_than_at_the_start_is_told(kind: Any, told: list[str]) -> None:
    before = warn_of_other_data(kind(0), {})
    assert warn_of_other_data(kind(0), before) == before
    assert not told
    warn_of_other_data(kind(1), before)
    (text,) = told
    assert "not that with which the training began: data set" in text
    assert "manual_seed" in text


def test_other_data_than_that_of_other_ranks_is_told(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_rank(values: Any) -> list[int]:
        return [max(value, there) for value, there in zip(values, theirs, strict=True)]

    theirs: list[int] = []
    monkeypatch.setattr(data_check, "highest", lambda values: (theirs.extend(values), list(values))[1])
    warn_of_other_data(split(0), {})
    monkeypatch.setattr(data_check, "highest", other_rank)
    warn_of_other_data(split(0), {})
    assert not told
    warn_of_other_data(split(1), {})
    assert "do not have the same training data" in told[0]


def test_of_a_stream_and_of_older_checkpoints_nothing_is_told(told: list[str]) -> None:
    class Stream(IterableDataset[Any]):
        """No order is known of it."""

        def __iter__(self) -> Iterator[int]:
            return iter(range(4))

    before = warn_of_other_data(split(0), {})
    assert warn_of_other_data(Stream(), before) == {}
    warn_of_other_data(split(0), {})
    assert not told
