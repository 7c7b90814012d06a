"""The benchmark's worker under `launcher: torchrun`: python elastic_worker_torchrun.py PARAMETERS"""

from __future__ import annotations

import json
import os
import sys

import torch
from elastic_baselines import model_of
from torch import distributed

from bftrainer import elastic

os.environ["BENCHMARK_HOST"] = json.loads(os.environ["BFTRAINER_WORKER"])["node"]
job = elastic.attach()
distributed.init_process_group("gloo")
model, batch, note = model_of(int(sys.argv[1]))
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3, momentum=0.9)
step, leads = 0, distributed.get_rank() == 0
assert job.checkpoint_dir is not None
path = job.checkpoint_dir / "state.pt"
if path.exists():
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]


def save() -> None:
    """Write the checkpoint; it appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


while not job.stopping:
    optimizer.zero_grad()
    parallel(batch).square().mean().backward()
    optimizer.step()
    step += 1
    if os.environ["LOCAL_RANK"] == "0":
        note(int(os.environ["GROUP_WORLD_SIZE"]))  # nodes
    job.progress(step=step, samples=step * len(batch) * distributed.get_world_size())
    if leads and step % 100 == 50:
        save()
if leads:
    save()
