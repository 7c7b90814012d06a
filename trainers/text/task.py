"""A character-level language model of Python's own reference manual, in plain PyTorch."""

import math
import re
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.utils.data import TensorDataset

BATCH = 32  # of all ranks together
EPOCHS = 1
LENGTH = 32  # characters of a sequence that are predicted
LETTERS = 95  # printable ASCII


def data() -> tuple[TensorDataset, TensorDataset]:
    """Sequences to learn from, 350 batches of 32, and 1,000 to judge it by; each (33,), of 0..94."""
    text = " ".join(topics[name] for name in sorted(topics))
    text = re.sub(r"[^!-~]+", " ", text)  # what help() shows, without its layout
    text = re.sub(r"(.)\1{3,}", r"\1\1\1", text)
    codes = torch.tensor(list(text.encode())) - ord(" ")
    count = len(codes) // (LENGTH + 1)
    sequences = codes[: count * (LENGTH + 1)].view(count, LENGTH + 1)
    sequences = sequences[torch.randperm(count, generator=torch.Generator().manual_seed(0))]
    return TensorDataset(sequences[1000 : 1000 + 350 * BATCH]), TensorDataset(sequences[:1000])


class Past(nn.Conv1d):
    """Sees a position and the one `far` before it, and adds a gated convolution of both."""

    def __init__(self, width: int, far: int) -> None:
        super().__init__(width, 2 * width, kernel_size=2, dilation=far)
        self.far = far

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.glu(super().forward(nn.functional.pad(x, (self.far, 0))), dim=1)


class Model(nn.Module):
    """Five gated convolutions that together see 32 characters back: (batch, n) to (batch, n, LETTERS)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.past = nn.Sequential(*(Past(width, 2**i) for i in range(5)))
        self.next = nn.Linear(width, LETTERS)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.next(self.past(self.letters(letters).transpose(1, 2)).transpose(1, 2))


def loss(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The mean cross-entropy of the next character over a batch, in nats."""
    (sequences,) = batch
    said = model(sequences[:, :-1]).float()
    return nn.functional.cross_entropy(said.flatten(0, 1), sequences[:, 1:].flatten())


@torch.no_grad()
def quality(model: nn.Module, test: TensorDataset) -> dict[str, float]:
    """Bits per character that the model has not seen."""
    return {"bits": loss(model, test.tensors).item() / math.log(2)}


def share(train: TensorDataset, step: int, rank: int, size: int) -> tuple[torch.Tensor, ...]:
    """The samples of one of `size` ranks in a step: every sample of an epoch once, on any number of ranks."""
    epoch, start = divmod(step * BATCH, len(train))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))
    return train[order[start : start + BATCH][rank::size]]
