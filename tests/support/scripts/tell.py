"""Trains next to nothing, and reports a loss."""

import time

import torch
from torch.utils.data import TensorDataset

from bftrainer import elastic

model = torch.nn.Linear(1, 1)
data = TensorDataset(torch.ones(1000, 1))
run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.0), data, batch_size=4)
for (x,) in run:
    model(x).sum().backward()
    time.sleep(0.01)
    run.step(loss=0.25)
