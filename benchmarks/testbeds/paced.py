"""A trainer for nodes that share a few cores: after every step it pauses, as if an accelerator computed.

Real training, a perceptron on generated points, on every rank; the pause leaves the cores to others.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pause-s", type=float, default=0.1)
args = parser.parse_args()

torch.manual_seed(0)
points = torch.randn(20_000, 16)
labels = (points[:, :4].prod(dim=1) > 0).long()

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

run = elastic.Run(model, optimizer, TensorDataset(points, labels), batch_size=32)
for inputs, targets in run:
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    time.sleep(args.pause_s)
    run.step(loss=loss.item())
