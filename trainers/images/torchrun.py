"""The ResNet on torchrun: checkpoint and restart whenever the number of ranks changes.

By hand: torchrun --standalone --nproc-per-node 2 trainers/images/torchrun.py
"""

import argparse
import math
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

job = elastic.attach(args.checkpoints)
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

state = job.load()  # what the run before has saved
if state:
    step = state.pop("step")
    for name, part in parts.items():
        part.load_state_dict(state[name])


def save() -> None:
    state = {name: part.state_dict() for name, part in parts.items()}
    job.save({"step": step, **state}, step=step, samples=step * task.BATCH)


ddp = DistributedDataParallel(model)
stop = False
while step < steps and not stop:
    mine = task.share(train, step, rank, size)
    loss = task.loss(ddp, mine)
    optimizer.zero_grad()
    (loss * len(mine[0]) * size / task.BATCH).backward()
    optimizer.step()
    scheduler.step()
    step += 1
    job.progress(step=step, samples=step * task.BATCH, loss=loss.item())
    stop = job.should_stop()  # the same on all ranks
    if job.should_save():
        save()

if step == steps and rank == 0:
    save()
    found = task.quality(model, test)
    job.done(step=step, samples=step * task.BATCH, **found)
    print(*(f"{name} {value:.4f}" for name, value in found.items()))
dist.destroy_process_group()
