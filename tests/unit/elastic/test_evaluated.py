"""`run.evaluate`: the same figures on any number of nodes, whatever a figure is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Queue
from typing import Any, cast

import pytest
import torch
from torch.utils.data import TensorDataset

from bftrainer.elastic.loop.evaluation import evaluated
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.train.source import Source

Wires = dict[tuple[int, int], "Queue[torch.Tensor]"]


@dataclass
class Wired:
    """A rank whose messages go through the test's process."""

    rank: int
    wires: Wires

    def send(self, tensor: torch.Tensor, to: int, within_s: float) -> None:
        self.wires[self.rank, to].put(tensor)

    def receive(self, into: torch.Tensor, sender: int, within_s: float) -> None:
        into.copy_(self.wires[sender, self.rank].get(timeout=within_s))


def root_of_mean_square(batch: Any) -> dict[str, float]:
    return {"rmse": float(batch[0].square().mean().sqrt()), "mean": float(batch[0].mean())}


def found_by(ranks: int, samples: int) -> list[dict[str, float]]:
    """What each rank finds over `samples` samples, in batches of 4."""
    data = TensorDataset(torch.arange(samples, dtype=torch.float64))
    wires: Wires = {(a, b): Queue() for a in range(ranks) for b in range(ranks)}

    def one(rank: int) -> dict[str, float]:
        group, source = cast("Group", Wired(rank, wires)), Source(data, 4, None, 0)
        return evaluated(source, root_of_mean_square, group, range(ranks), 60.0)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(one, range(ranks)))


@pytest.mark.parametrize("samples", [3, 21, 24])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_figure_that_is_no_mean_over_samples_is_the_same_on_any_number_of_nodes(
    ranks: int, samples: int
) -> None:
    alone = found_by(1, samples)[0]
    assert found_by(ranks, samples) == [pytest.approx(alone, rel=1e-12)] * ranks
