"""Whether a script of its own hears that batch normalisation depends on the number of nodes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from bftrainer.elastic.checks.norm_shares import NormShares
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.train.policy import FixedGlobal, FixedPerNode, Policy
from bftrainer.elastic.train.trained import trained

ORDERS: dict[str, Any] = {
    "fd": 0,
    "trainer": 1,
    "node": "n",
    "generation": 1,
    "address": "",
    "checkpoint_dir": "",
    "samples": None,
    "checkpoint_every_s": 5.0,
}


def told(norm: nn.Module, policy: Policy, ranks: Sequence[int], at_most: int) -> str:
    model = nn.Sequential(nn.Linear(3, 4), norm)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = NormShares(trained(model, sgd, None), policy, ranks, at_most=at_most, least=2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            watched.loop_begins()
    assert len(said) <= 1
    return " ".join(str(each.message) for each in said)


@pytest.mark.parametrize(
    ("policy", "ranks", "at_most", "said"),
    [
        (FixedGlobal(12), [1, 2, 3], 12, "sees 4 samples at once on 3 ranks, and 12 on 1. Give elastic.Run "),
        (FixedGlobal(64), [1, 2, 3], 16, "sees 10 samples at once on 3 ranks, and 16 on 1. Take a batch"),
        (FixedGlobal(64), [1, 2, 4], 16, ""),
        (FixedGlobal(12), [2], 12, ""),
        (FixedPerNode(12), [1, 2, 3], 12, ""),
    ],
)
def test_micro_batches_of_several_sizes_are_told(
    policy: Policy, ranks: Sequence[int], at_most: int, said: str
) -> None:
    found = told(nn.BatchNorm1d(4), policy, ranks, at_most)
    assert said in found and ("BFT-229" in found) == bool(said)


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.BatchNorm1d(4).eval(), nn.GroupNorm(2, 4)])
def test_other_layers_are_not(norm: nn.Module) -> None:
    assert not told(norm, FixedGlobal(12), [1, 2, 3], 12)


def test_the_numbers_of_ranks_are_those_of_the_spec() -> None:
    assert list(Orders(**ORDERS, n_min=1, n_max=3, local_size=2).every_ranks) == [2, 4, 6]
    assert list(Orders(**ORDERS, n_min=1, n_max=4, sizes=(1, 4)).every_ranks) == [1, 4]
