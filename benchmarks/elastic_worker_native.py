"""The benchmark's worker under `launcher: native`: python elastic_worker_native.py PARAMETERS"""

from __future__ import annotations

import json
import os
import sys

import torch
from elastic_baselines import model_of
from torch.utils.data import TensorDataset

from bftrainer import elastic

os.environ["BENCHMARK_HOST"] = json.loads(os.environ["BFTRAINER_WORKER"])["node"]
model, batch, note = model_of(int(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
run = elastic.Run(
    model, optimizer, TensorDataset(batch.repeat(4096, 1)), batch_size=len(batch), epochs=1 << 30
)
for (x,) in run:
    run.backward(run.model(x).square().mean())
    if run.step() and run.local_rank == 0:
        note(run.size // run.local_size)  # nodes
