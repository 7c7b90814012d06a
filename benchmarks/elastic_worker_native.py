"""The benchmark's worker under `launcher: native`: python elastic_worker_native.py PARAMETERS"""

from __future__ import annotations

import json
import os
import sys

import torch
from elastic_baselines import model_of
from torch.utils.data import DataLoader, TensorDataset

from bftrainer import elastic

os.environ["BENCHMARK_HOST"] = json.loads(os.environ["BFTRAINER_WORKER"])["node"]
model, batch, note = model_of(int(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
data = DataLoader(TensorDataset(torch.arange(1 << 20)), batch_size=len(batch))
run = elastic.Run(model, optimizer, data, epochs=1 << 30)
for (samples,) in run:
    run.backward(run.model(batch).square().mean())
    if run.step():
        note(run.size // run.local_size if run.local_rank == 0 else 0, samples.tolist())  # nodes
