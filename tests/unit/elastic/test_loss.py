"""A loss that is a sum over the batch is told; means, and sums over something else, are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as nnf
from torch.utils.data import TensorDataset

from bftrainer import elastic
from bftrainer.elastic.train.loss import is_sum

N = 6
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def vae(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kl = -0.5 * torch.sum(1 + x - x.pow(2) - x.exp())
    return nnf.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="sum") + 0.1 * kl


@pytest.mark.parametrize(
    "loss",
    [
        vae,
        lambda x, y: nnf.mse_loss(x, y, reduction="sum"),
        lambda x, y: nnf.cross_entropy(x, torch.zeros(N, dtype=torch.long), reduction="sum"),
        lambda x, y: 0.5 * (x - y).square().sum(),
        lambda x, y: nnf.mse_loss(x, y) - (x * y).sum(),
    ],
)
def test_sums_are_found(loss: Loss) -> None:
    x = torch.randn(N, 3, requires_grad=True)
    assert is_sum(loss(x, torch.randn(N, 3)), N)
    assert not is_sum(loss(x, torch.randn(N, 3)) / N, N)


@pytest.mark.parametrize(
    "loss",
    [
        nnf.mse_loss,
        lambda x, y: nnf.mse_loss(x, y) + 0.1 * x.abs().mean(),
        lambda x, y: (1.0 / N) * (x - y).square().sum(),
        lambda x, y: (x - y).square().mean(0).sum(),
        lambda x, y: torch.stack([nnf.mse_loss(x, y), x.mean()]).sum(),
        lambda x, y: (
            nnf.mse_loss(x, y) + 1e-4 * sum(p.square().sum() for p in torch.nn.Linear(3, 1).parameters())
        ),
        lambda x, y: x.sum(1).mean(),
    ],
)
def test_means_are_not(loss: Loss) -> None:
    assert not is_sum(loss(torch.randn(N, 3, requires_grad=True), torch.randn(N, 3)), N)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_run_tells_once(reduction: str, recwarn: pytest.WarningsRecorder) -> None:
    model = torch.nn.Linear(1, 1)
    data = TensorDataset(torch.ones(12, 1))
    run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), data, batch_size=4, epochs=2)
    for (x,) in run:
        run.backward(nnf.mse_loss(model(x), x, reduction=reduction))
        run.step()
    told = [str(one.message) for one in recwarn if "sum over the batch" in str(one.message)]
    assert len(told) == (reduction == "sum")
