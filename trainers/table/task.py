"""A table of numbers, half of them irrelevant (Friedman's first problem), in plain PyTorch."""

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import TensorDataset

BATCH = 64  # of all ranks together
EPOCHS = 10


def data() -> tuple[TensorDataset, TensorDataset]:
    """12,800 rows to learn from, 200 batches of 64, and 4,000 to judge it by: (10,) and (1,) each."""
    columns, target = make_friedman1(n_samples=16_800, noise=1.0, random_state=0)
    x = torch.tensor(columns, dtype=torch.float32) * 2 - 1
    y = (torch.tensor(target, dtype=torch.float32)[:, None] - 14) / 5
    return TensorDataset(x[:12_800], y[:12_800]), TensorDataset(x[12_800:], y[12_800:])


class Model(nn.Sequential):
    """A perceptron with two hidden layers, 18,000 parameters."""

    def __init__(self, width: int = 128) -> None:
        super().__init__(
            nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )


def loss(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The mean over a batch of the squared error."""
    x, y = batch
    return nn.functional.mse_loss(model(x), y)


@torch.no_grad()
def quality(model: nn.Module, test: TensorDataset) -> dict[str, float]:
    """The explained share of the target's variance. At most 0.96: the rest is noise."""
    return {"r2": 1 - (loss(model, test.tensors) / test.tensors[1].var()).item()}


def share(train: TensorDataset, step: int, rank: int, size: int) -> tuple[torch.Tensor, ...]:
    """The samples of one of `size` ranks in a step: every sample of an epoch once, on any number of ranks."""
    epoch, start = divmod(step * BATCH, len(train))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))
    return train[order[start : start + BATCH][rank::size]]
