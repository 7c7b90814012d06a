"""Trains with a batch that adapts, to the end of its work: adapt.py NOISE, the gradient noise in samples."""

from __future__ import annotations

import sys
import time

import torch

from bftrainer import elastic

FIXED_S, EACH_S = 0.02, 0.002
"""How long a worker computes for each micro-batch, and for each sample of it."""


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Gradients of a loss that is linear in the weights: all have the mean 1, and vary as is asked for."""

    def __init__(self, noise: float) -> None:
        generator = torch.Generator().manual_seed(1)
        self.rows = 1 + noise**0.5 * torch.randn(4096, 1024, generator=generator)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.rows[i]


model = torch.nn.Linear(1024, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
policy = elastic.Adaptive(initial=8, max=64, max_per_worker=64)
run = elastic.Run(model, optimizer, Samples(float(sys.argv[1])), policy=policy)
for rows in run:
    run.backward(run.model(rows).mean())
    time.sleep(FIXED_S + EACH_S * len(rows))
    run.step()
