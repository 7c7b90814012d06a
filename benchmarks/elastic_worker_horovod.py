"""The benchmark's worker under `launcher: horovod`: python elastic_worker_horovod.py PARAMETERS"""

from __future__ import annotations

import json
import os
import sys

import horovod.torch as hvd
import torch
from elastic_baselines import model_of

from bftrainer import elastic

os.environ["BENCHMARK_HOST"] = json.loads(os.environ["BFTRAINER_WORKER"])["node"]
model, batch, note = model_of(int(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
job = elastic.attach()
hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train until the agent asks the worker to leave."""
    while not job.stopping:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if hvd.local_rank() == 0:
            note(hvd.cross_size())  # nodes
        state.step += 1
        state.commit()
        job.progress(step=state.step, samples=state.step * len(batch) * hvd.size())


train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))
