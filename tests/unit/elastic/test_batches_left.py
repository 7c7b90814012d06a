"""`len(run)`: how many batches the loop has yet to yield on a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from bftrainer import elastic
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.batches import IndexedBatches
from bftrainer.elastic.train.policy import FixedGlobal
from bftrainer.elastic.train.source import Source

LENGTH = 23


def run(data: Any, **options: Any) -> elastic.Run:
    model = torch.nn.Linear(1, 1)
    return elastic.Run(model, torch.optim.SGD(model.parameters(), lr=1e-3), data, batch_size=5, **options)


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        yield 1


@given(
    length=st.integers(1, 40),
    total=st.integers(1, 50),
    at_most=st.integers(1, 9),
    size=st.integers(1, 4),
    place=st.none() | st.integers(0, 3),
    epochs=st.none() | st.integers(0, 3),
    budget=st.none() | st.integers(1, 90),
    taken=st.integers(0, 10),
    stand_in=st.booleans(),
)
def test_as_many_are_left_as_the_loop_will_yield(
    *,
    length: int,
    total: int,
    at_most: int,
    size: int,
    place: int | None,
    epochs: int | None,
    budget: int | None,
    taken: int,
    stand_in: bool,
) -> None:
    data = torch.arange(length)
    batches = IndexedBatches(
        Source(data, at_most, None, 0),
        FixedGlobal(total),
        epochs=epochs,
        budget=budget,
        stand_in=stand_in,
    )
    batches.enter(Position(), place if place is None else place % size, size)
    position = Position()
    for _ in range(taken):
        if not batches.complete(position):
            position = batches.share(position).after
    if epochs is None and budget is None:
        assert batches.left(position) is None
        return
    told, found = batches.left(position), 0
    while not batches.complete(position):
        mine = batches.share(position)
        found, position = found + len(batches.parts(mine)), mine.after
    assert told == found


def test_a_progress_bar_knows_how_many_there_are() -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    made = run(torch.zeros(LENGTH, 1), epochs=2)
    bar = tqdm(made, disable=None, file=None)
    assert len(bar) == len(made) == 2 * 5
    for x in bar:
        made.backward(made.model(x).mean())
        made.step()
        if made.position.step == 3:
            assert len(made) == 2 * 5 - 3
    assert len(made) == 0 and made, "a run is true, also when nothing is left"


def test_by_hand_a_run_without_epochs_is_one_pass() -> None:
    assert len(run(torch.zeros(LENGTH, 1))) == 5


def test_where_it_is_not_known_the_error_says_what_to_give() -> None:
    with pytest.raises(
        TypeError, match=r"Give data with a length and elastic\.Run\(epochs=\.\.\.\).*BFT-110"
    ):
        len(run(Stream(), epochs=2))


@pytest.mark.parametrize(
    ("epochs", "budget", "found"), [(3, 100, 3), (3, 20, 2.0), (None, 20, 2.0), (3, None, 3)]
)
def test_a_run_has_as_many_epochs_as_end_first(epochs: int | None, budget: int | None, found: float) -> None:
    options: Any = {"epochs": epochs, "budget": budget, "stand_in": False}
    assert IndexedBatches(Source(torch.arange(10), 5, None, 0), FixedGlobal(5), **options).epochs == found
