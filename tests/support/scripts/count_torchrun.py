"""As count.py, but written for torchrun: it knows its rank, checkpoint and restart, and no more."""

import watched  # first: a test may hold us before the imports that take long

# isort: split
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from bftrainer import elastic

LENGTH, BATCH = 5_000, 16
where, delay = sys.argv[1], float(sys.argv[2])
job = elastic.attach()
work, newest = job.samples, job.checkpoint_dir / "newest.pt"
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = samples = epoch = cursor = 0
if newest.exists():
    saved = torch.load(newest, weights_only=True)
    step, samples, epoch, cursor = saved["position"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def save() -> None:
    newest.parent.mkdir(parents=True, exist_ok=True)
    unfinished = newest.with_suffix(".new")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"position": (step, samples, epoch, cursor), **state}, unfinished)
    unfinished.rename(newest)


def train_on(indices: torch.Tensor, share: float) -> None:
    optimizer.zero_grad(set_to_none=False)
    if len(indices):
        model(indices[:, None] / LENGTH).square().mean().backward()
    for parameter in model.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad * share
        dist.all_reduce(gradient)
        parameter.grad = gradient
    optimizer.step()


saved_at = time.monotonic()
with Path(where, f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1) as out:
    while samples < work:
        if job.stopping and rank == 0:
            save()
            job.saved(step=step, samples=samples, epoch=epoch)
            sys.exit(0)
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(epoch))
        total = min(size * BATCH, LENGTH - cursor, work - samples)
        indices = order[cursor : cursor + total].tensor_split(size)[rank]
        watched.step(delay)
        train_on(indices, len(indices) / total)
        line = {"generation": generation, "size": size, "rank": rank, "step": step}
        line |= {"epoch": epoch, "cursor": cursor, "indices": indices.tolist()}
        out.write(json.dumps(line | {"weight": model.weight.item()}) + "\n")
        step, samples, cursor = step + 1, samples + total, cursor + total
        if cursor == LENGTH:
            epoch, cursor = epoch + 1, 0
        job.progress(step=step, samples=samples, epoch=epoch)
        if rank == 0 and time.monotonic() - saved_at >= job.checkpoint_every_s:
            save()
            saved_at = time.monotonic()
if rank == 0:
    save()
    job.done(step=step, samples=samples, epoch=epoch)
dist.barrier()
