"""The ResNet on Elastic Horovod: the state survives in the memory of workers that stay.

By hand: horovodrun -np 2 python trainers/images/elastic_horovod.py, or plain python.
"""

import argparse
import math
import time
from pathlib import Path

import horovod.torch as hvd
import task
import torch

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=task.EPOCHS)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--checkpoints", type=Path, help="folder, where bftrainer gives none")
args = parser.parse_args()

torch.manual_seed(args.seed)
train, test = task.data()
model = task.ResNet()
job = elastic.attach()  # waits for a place; the members train on meanwhile
hvd.init()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
steps = math.ceil((job.samples or args.epochs * len(train)) / task.BATCH)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps + 1)
state = hvd.elastic.TorchState(model, optimizer, step=0)

folder = job.checkpoint_dir or args.checkpoints
newest = folder / "newest.pt" if folder else None
if newest and newest.exists():
    found = torch.load(newest, weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    state.step = found["step"]
    state.save()


def save() -> None:
    if newest:
        newest.parent.mkdir(parents=True, exist_ok=True)
        partial = newest.with_suffix(".partial")
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": state.step}
        torch.save(kept, partial)
        partial.replace(newest)  # a process killed at any moment leaves the old one or the new one


@hvd.elastic.run
def learn(state: hvd.elastic.TorchState) -> None:
    state.save()  # a newcomer falls back to the state that it has received
    scheduler.last_epoch = state.step  # the schedule has no other state
    saved_at = time.monotonic()
    while state.step < steps:
        if hvd.rank() == 0 and job.stopping:
            save()
            job.saved(step=state.step, samples=state.step * task.BATCH)
            return
        mine = task.share(train, state.step, hvd.rank(), hvd.size())
        optimizer.zero_grad()
        loss = task.loss(model, mine)
        (loss * len(mine[0]) * hvd.size() / task.BATCH).backward()
        optimizer.step()
        scheduler.step()
        state.step += 1
        job.progress(step=state.step, samples=state.step * task.BATCH, loss=loss.item())
        if hvd.rank() == 0 and time.monotonic() - saved_at >= job.checkpoint_every_s:
            save()
            saved_at = time.monotonic()
        state.commit()
    if hvd.rank() == 0:
        save()
        found = task.quality(model, test)
        job.done(step=state.step, samples=state.step * task.BATCH, **found)
        print(*(f"{name} {value:.4f}" for name, value in found.items()))


learn(state)
