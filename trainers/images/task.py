"""Handwritten digits and a small ResNet: data, model, loss and quality, in plain PyTorch."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

BATCH = 64  # of all ranks together
EPOCHS = 20


def data() -> tuple[TensorDataset, TensorDataset]:
    """1,408 images to learn from, 22 batches of 64, and 389 to judge it by."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    targets = torch.tensor(labels)
    return TensorDataset(images[:1408], targets[:1408]), TensorDataset(images[1408:], targets[1408:])


class Block(nn.Module):
    """Two convolutions and a connection past them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.past = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.way(x) + self.past(x))


class ResNet(nn.Sequential):
    """Six convolutions deep, 20,000 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            Block(16, 16, 1),
            Block(16, 32, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The mean over a batch."""
    images, targets = batch
    return nn.functional.cross_entropy(model(images), targets, label_smoothing=0.1)


@torch.no_grad()
def quality(model: nn.Module, test: TensorDataset) -> dict[str, float]:
    images, targets = test.tensors
    model.eval()
    right = model(images).argmax(1) == targets
    model.train()
    return {"accuracy": right.float().mean().item()}


def share(train: TensorDataset, step: int, rank: int, size: int) -> tuple[torch.Tensor, ...]:
    """The samples of one of `size` ranks in a step: every sample of an epoch once, on any number of ranks."""
    epoch, start = divmod(step * BATCH, len(train))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))
    return train[order[start : start + BATCH][rank::size]]
