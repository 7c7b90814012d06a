"""Whether a script hears that its loss is no mean over samples, so that results depend on the nodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bftrainer.elastic.checks.loss_shares import LossShares
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.policy import FixedGlobal, FixedPerNode, Policy

Loss = Callable[[nn.Linear, Tensor, Tensor], Tensor]
"""Of a model, samples and their labels, 0 to 2."""


def told(
    loss: Loss,
    policy: Policy | None = None,
    ranks: Sequence[int] = (1, 2),
    sizes: Sequence[int] = (12, 12, 5),
) -> str:
    torch.manual_seed(0)
    model, labels = nn.Linear(4, 3), torch.tensor([0, 1, 2, 0, 1, 1, 0, 2, 2, 2, 2, 2])
    watched = LossShares(policy or FixedGlobal(12), ranks, at_most=12, least=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for turn, size in enumerate(sizes):
            part = MicroBatch(0, size, 1.0, first=True, last=True)
            found = loss(model, torch.randn(size, 4), labels.roll(turn * 5)[:size])
            watched.before_backward("optimizer", part, found)
    assert len(said) <= 1
    return " ".join(str(each.message) for each in said)


def weighed(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, weight=torch.tensor([0.2, 5.0, 1.0]))


def ignoring(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, ignore_index=2) + 0.1 * model.weight.square().sum()


def of_tokens(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    """As of packed sequences: each sample has as many tokens as its label says."""
    of = y.repeat_interleave(y + 1)
    return functional.cross_entropy(model(x).repeat_interleave(y + 1, 0), of)


def masked(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    each = functional.binary_cross_entropy_with_logits(model(x)[:, 0], (y > 0).float(), reduction="none")
    return 0.5 * (each * (y > 0)).sum() / (y > 0).sum()


def added_up(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, reduction="sum")


def by_the_step(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    return (model(x)[:, 0] - y).square().sum() / 12


def root(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    return functional.mse_loss(model(x)[:, 0], y.float()).sqrt()


def dice(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    p, of = model(x)[:, 0].sigmoid(), (y > 0).float()
    return functional.cross_entropy(model(x), y) + 1 - 2 * (p * of).sum() / (p.sum() + of.sum())


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (weighed, "BFT-128"),
        (ignoring, "BFT-128"),
        (of_tokens, "BFT-128"),
        (masked, "BFT-128"),
        (added_up, "divided by 1 however many samples there are"),
        (by_the_step, "divided by 12 however many samples there are"),
        (root, "BFT-130"),
        (dice, "BFT-130"),
    ],
)
def test_a_loss_that_is_no_mean_over_samples_is_told(loss: Loss, said: str) -> None:
    assert said in told(loss)


@pytest.mark.parametrize("loss", [weighed, of_tokens, added_up, root])
def test_it_is_also_told_where_all_batches_have_one_size(loss: Loss) -> None:
    assert told(loss, sizes=(6, 6, 6))


def plain(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    """What many scripts add up: means, a part for each sample, and what follows from the weights."""
    own = model.weight.square().sum().sqrt() + 0.2 * model.weight.square().sum() + model.bias.exp().sum()
    return (
        functional.cross_entropy(model(x), y, label_smoothing=0.1)
        + 0.3 * functional.mse_loss(model(x)[:, 0], y)
        + own
    )


def by_its_samples(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    """A sum over tokens, divided by the samples times the usual number of tokens."""
    return functional.cross_entropy(model(x), y, ignore_index=2, reduction="sum") / (len(x) * 0.7)


def of_each(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    """A root for each sample, half of a mean over tokens, and an annealed part."""
    root = (model(x)[:, 0] - y).square().add(1).sqrt().mean()
    tokens = functional.cross_entropy(model(x).repeat_interleave(5, 0), y.repeat_interleave(5)) / 2
    return root + tokens + functional.l1_loss(model(x)[:, 1], y.float()) * float(torch.rand(()))


def padded(model: nn.Linear, x: Tensor, y: Tensor) -> Tensor:
    """Of two masked tokens a sample: as many in each."""
    labels = torch.stack([y, torch.full_like(y, -100), y], 1).flatten()
    return functional.cross_entropy(model(x).repeat_interleave(3, 0), labels)


@pytest.mark.parametrize("loss", [plain, by_its_samples, of_each, padded])
def test_means_over_samples_and_terms_of_the_weights_are_not(loss: Loss) -> None:
    assert not told(loss, sizes=(12, 12, 6, 4, 3))


@pytest.mark.parametrize(
    ("policy", "ranks"), [(FixedPerNode(12), (1, 2)), (FixedGlobal(24), (1, 2)), (FixedGlobal(12), (2,))]
)
def test_where_shares_are_cut_alike_on_all_nodes_nothing_is(policy: Policy, ranks: Sequence[int]) -> None:
    assert not told(weighed, policy, ranks)
