"""The ResNet on torchrun: checkpoint and restart whenever the number of ranks changes.

By hand: torchrun --standalone --nproc-per-node 2 trainers/images/torchrun.py
"""

import argparse
import math
import time
from pathlib import Path

import task
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=task.EPOCHS)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--checkpoints", type=Path, help="folder, where bftrainer gives none")
args = parser.parse_args()

job = elastic.attach()
if dist.is_torchelastic_launched():
    dist.init_process_group("gloo")
else:  # plain python: alone
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(args.seed)
train, test = task.data()
model = task.ResNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
steps = math.ceil((job.samples or args.epochs * len(train)) / task.BATCH)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps + 1)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
step = 0

folder = job.checkpoint_dir or args.checkpoints
newest = folder / "newest.pt" if folder else None
if newest and newest.exists():
    found = torch.load(newest, weights_only=True)
    step = found.pop("step")
    for name, state in found.items():
        parts[name].load_state_dict(state)


def save() -> None:
    if newest:
        newest.parent.mkdir(parents=True, exist_ok=True)
        partial = newest.with_suffix(".partial")
        torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, partial)
        partial.replace(newest)  # a process killed at any moment leaves the old one or the new one


ddp = DistributedDataParallel(model)
saved_at, stop = time.monotonic(), torch.zeros(1)
while step < steps and not stop:
    mine = task.share(train, step, rank, size)
    loss = task.loss(ddp, mine)
    optimizer.zero_grad()
    (loss * len(mine[0]) * size / task.BATCH).backward()
    optimizer.step()
    scheduler.step()
    step += 1
    job.progress(step=step, samples=step * task.BATCH, loss=loss.item())
    dist.all_reduce(stop.fill_(job.stopping))  # SIGTERM comes to one rank: all of them end here
    if rank == 0 and (stop or time.monotonic() - saved_at >= job.checkpoint_every_s):
        save()
        saved_at = time.monotonic()

if rank == 0 and stop and step < steps:
    job.saved(step=step, samples=step * task.BATCH)
elif rank == 0:
    save()
    found = task.quality(model, test)
    job.done(step=step, samples=step * task.BATCH, **found)
    print(*(f"{name} {value:.4f}" for name, value in found.items()))
dist.destroy_process_group()
