"""A stream is shared out like a data set with an index: every sample once, from any place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from bftrainer import elastic
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.policy import FixedGlobal
from bftrainer.elastic.train.streamed import Reader, StreamedBatches


class Numbers(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from (torch.tensor([float(i)]) for i in range(self.length))


class Shuffled(Numbers):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from (torch.tensor([float(i)]) for i in torch.randperm(self.length).tolist())


def batches(data: Any, batch: int = 5) -> StreamedBatches:
    reader = Reader(data, 5, None, 0)
    return StreamedBatches(reader, FixedGlobal(batch), epochs=2, budget=None, stand_in=False)


def course(found: StreamedBatches, position: Position, place: int = 0, size: int = 1) -> list[list[int]]:
    """The samples of every step from `position` to the end of the run."""
    found.enter(position, place, size)
    steps = []
    while not found.complete(position):
        mine = found.share(position)
        parts = [found.fetch(position.epoch, part) for part in found.parts(mine)]
        steps.append([int(x) for part in parts for x in part.flatten()])
        position = mine.after
    found.stop()
    return steps


def test_every_sample_of_an_epoch_is_used_once_on_any_number_of_ranks() -> None:
    expected = [[*range(a, min(a + 5, 23))] for a in range(0, 23, 5)] * 2
    assert course(batches(Numbers()), Position()) == expected
    shared = [course(batches(Numbers()), Position(), place, 2) for place in (0, 1)]
    assert [one + other for one, other in zip(*shared, strict=True)] == expected
    assert course(batches(Numbers(20)), Position())[-1] == [15, 16, 17, 18, 19], "no empty step at the end"


def test_a_stream_goes_on_from_where_training_stands() -> None:
    whole = course(batches(Shuffled()), Position())
    assert [sorted(x for step in whole[i : i + 5] for x in step) for i in (0, 5)] == [[*range(23)]] * 2
    assert whole[:5] != whole[5:], "each epoch has an order of its own"
    torch.manual_seed(7)
    torch.rand(3)  # what the training draws does not matter
    assert course(batches(Shuffled()), Position(step=2, samples=10, cursor=10)) == whole[2:]
    assert course(batches(Shuffled()), Position(step=5, samples=23, epoch=1)) == whole[5:]
    found = batches(Shuffled())
    found.enter(Position(), 0, 1)
    for at in (Position(step=3, samples=15, cursor=15), Position(step=1, samples=5, cursor=5)):
        mine = found.share(at)  # another rank's later state, and an earlier checkpoint
        assert [int(x) for x in found.fetch(0, found.parts(mine)[0]).flatten()] == whole[at.step]
    found.stop()


def test_a_run_by_hand_takes_a_stream_with_or_without_a_loader() -> None:
    for data, options in ((Numbers(), {"batch_size": 5}), (DataLoader(Numbers(), batch_size=5), {})):
        model = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=0.0)
        run = elastic.Run(model, sgd, data, accumulate=2, **options)  # type: ignore[arg-type]
        seen = []
        for x in run:
            run.backward(run.model(x).sum())
            run.step()
            seen.append(len(x))
        assert seen == [5, 5, 5, 5, 3]
        assert run.position == Position(step=3, samples=23, epoch=1, cursor=0)


def test_a_stream_that_gives_less_when_it_is_read_again_is_told() -> None:
    with pytest.raises(ValueError, match="no sample 30 in epoch 1"):
        batches(Numbers()).share(Position(step=9, samples=53, epoch=1, cursor=30))


@pytest.mark.parametrize("length", [20, 21, 24, 39])
def test_drop_last_leaves_out_the_end_of_a_stream_that_is_no_whole_batch(length: int) -> None:
    def steps(place: int, size: int) -> list[list[int]]:
        data = DataLoader(Numbers(length), batch_size=5, drop_last=True)
        reader = Reader(data, None, None, 0)
        found = StreamedBatches(reader, FixedGlobal(10), epochs=2, budget=None, stand_in=False)
        return course(found, Position(), place, size)

    whole = length - length % 5
    expected = [[*range(a, min(a + 10, whole))] for a in range(0, whole, 10)] * 2
    assert [one + other for one, other in zip(steps(0, 2), steps(1, 2), strict=True)] == expected
