"""A small training for torchrun that saves what it needs; with `unsaved` it forgets its optimizer."""

import sys

import torch
import torch.distributed as dist

from bftrainer import elastic

MISTAKE, BATCH, STEPS = sys.argv[1], 12, 40
job = elastic.attach()
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(120, 5)
y = x.prod(1, keepdim=True).tanh()
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step = 0
if state := job.load():
    step = state["step"]
    model.load_state_dict(state["model"])
    if MISTAKE == "right":
        optimizer.load_state_dict(state["optimizer"])
ddp = torch.nn.parallel.DistributedDataParallel(model)
while step < STEPS:
    order = torch.randperm(120, generator=torch.Generator().manual_seed(step))[:BATCH]
    mine = order[rank::size]
    loss = ((ddp(x[mine]) - y[mine]) ** 2).mean()
    optimizer.zero_grad()
    (loss * len(mine) * size / BATCH).backward()
    optimizer.step()
    step += 1
    job.progress(step=step, samples=step * BATCH, loss=loss.item())
    stop = job.should_stop()
    if job.should_save():
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        job.save(state, step=step, samples=step * BATCH)
    if stop:
        break
else:
    if rank == 0:
        job.done(step=step, samples=step * BATCH)
dist.destroy_process_group()
