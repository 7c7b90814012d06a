"""A trainer for Elastic Horovod that writes down what it trained on, as count.py does.

count_horovod.py WHERE [DELAY_S [apart]]: a line per step and worker. A step counts when it is committed.
`apart`: no gradients are averaged.
"""

import watched  # first: a test may hold us before the imports that take long

# isort: split
import json
import os
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch

from bftrainer import elastic

LENGTH, BATCH = 5_000, 16
where, delay = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.002

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
job = elastic.attach()  # waits until there is a place, while the members train on
hvd.init()
if "apart" not in sys.argv:
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, samples=0, epoch=0, cursor=0)
checkpoint = job.checkpoint_dir / "checkpoint.pt"


def save() -> None:
    counts = {name: getattr(state, name) for name in ("step", "samples", "epoch", "cursor")}
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "counts": counts}
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    new = checkpoint.with_suffix(".new")
    torch.save(whole, new)
    new.replace(checkpoint)


def due() -> bool:
    return not checkpoint.exists() or time.time() - checkpoint.stat().st_mtime >= job.checkpoint_every_s


def load() -> None:
    whole = torch.load(checkpoint)
    model.load_state_dict(whole["model"])
    optimizer.load_state_dict(whole["optimizer"])
    for name, value in whole["counts"].items():
        setattr(state, name, value)
    state.save()  # what the others are given is what was saved last


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    state.save()  # what a newcomer has been given is what it falls back to
    world = hvd.broadcast_object(time.time_ns(), 0)  # grows; tells a step from its repetition
    while not job.complete(state.samples):
        if hvd.rank() == 0 and job.stopping:
            save()
            job.saved(step=state.step, samples=state.samples, epoch=state.epoch)
            return
        total = min(hvd.size() * BATCH, LENGTH - state.cursor, (job.samples or sys.maxsize) - state.samples)
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(state.epoch))
        mine = order[state.cursor : state.cursor + total][hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        (model(mine[:, None] / LENGTH).square().sum() / total).backward()
        watched.step(delay)
        optimizer.step()
        note = {"generation": world, "size": hvd.size(), "rank": hvd.rank(), "step": state.step}
        note |= {"epoch": state.epoch, "cursor": state.cursor, "indices": mine.tolist()}
        out.write(json.dumps(note | {"weight": model.weight.item()}) + "\n")
        state.step, state.samples = state.step + 1, state.samples + total
        state.epoch, state.cursor = (
            (state.epoch, state.cursor + total) if state.cursor + total < LENGTH else (state.epoch + 1, 0)
        )
        state.save()
        job.progress(step=state.step, samples=state.samples, epoch=state.epoch)
        if hvd.rank() == 0 and due():
            save()
        state.check_host_updates()
    if hvd.rank() == 0:
        save()
        job.done(step=state.step, samples=state.samples, epoch=state.epoch)


if hvd.rank() == 0 and checkpoint.exists():
    load()
with (where / f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1) as out:
    train(state)
