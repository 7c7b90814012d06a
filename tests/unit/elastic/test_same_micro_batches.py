"""Micro-batches of one size have the same samples on any number of nodes, as batch normalisation needs."""

from __future__ import annotations

import pytest
from torch.utils.data import BatchSampler

from bftrainer.elastic.frameworks.even_batches import EvenBatches
from bftrainer.elastic.frameworks.fixed_batch import cut
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.sampler import micro_batches, share

BATCH, AT_ONCE, LENGTH = 64, 16, 192
Step = frozenset[frozenset[int]]


def of_run(nodes: int, at_once: int) -> list[Step]:
    """What the nodes of an `elastic.Run` compute at once, step by step."""
    position, steps = Position(), []
    while position.epoch == 0:
        shares = [share(position, rank=r, size=nodes, batch=BATCH, length=LENGTH) for r in range(nodes)]
        cuts = [each for mine in shares for each in micro_batches(mine, at_once)]
        steps.append(frozenset(frozenset(range(start, stop)) for start, stop in cuts))
        position = shares[0].after
    return steps


def of_lightning(nodes: int, at_once: int) -> list[Step]:
    """What the ranks of Lightning compute at once."""
    mine = cut(BATCH, nodes, at_once)
    ranks = [[*EvenBatches(LENGTH, BATCH, mine, r, shuffle=True, seed=1)] for r in range(nodes)]
    return _steps(ranks, mine.micro_batches)


def of_hugging_face(nodes: int, at_once: int) -> list[Step]:
    """What the ranks of Hugging Face's Trainer compute at once."""
    loading = pytest.importorskip("accelerate.data_loader")
    mine = cut(BATCH, nodes, at_once)
    batches = BatchSampler(range(LENGTH), mine.samples, drop_last=False)
    ranks = [[*loading.BatchSamplerShard(batches, nodes, r)] for r in range(nodes)]
    return _steps(ranks, mine.micro_batches)


def _steps(ranks: list[list[list[int]]], parts: int) -> list[Step]:
    firsts = range(0, len(ranks[0]), parts)
    return [
        frozenset(frozenset(batch) for rank in ranks for batch in rank[first : first + parts])
        for first in firsts
    ]


@pytest.mark.parametrize("of", [of_run, of_lightning, of_hugging_face])
def test_micro_batches_of_one_size_are_the_same_on_any_number_of_nodes(of: object) -> None:
    assert callable(of)
    alone = of(1, AT_ONCE)
    assert len(alone) == LENGTH // BATCH
    assert all(len(each) == AT_ONCE for step in alone for each in step)
    assert of(2, AT_ONCE) == of(4, AT_ONCE) == alone
    assert of(4, BATCH) == of(4, AT_ONCE) != of(1, BATCH), "shares at once are as large as the nodes let them"
