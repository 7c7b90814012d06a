"""A trainer for benchmarks/turns.py: it computes for a time of its thread, and exchanges gradients of a size.

Its arguments: seconds that it computes in a step; megabytes of gradients; seconds that each exchange takes
longer, as over a slow network; and a folder. While a file `free` is there, it takes no turns. Each node has a
core of its own, as it would have a GPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic
from bftrainer.elastic.loop.device_turns import TakesTurns
from bftrainer.elastic.members.group import Group

computes_s, megabytes, slower_s, folder = *map(float, sys.argv[1:4]), Path(sys.argv[4])
node = json.loads(os.environ["BFTRAINER_WORKER"])["node"]
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[ord(node[-1]) % len(cores)]})
torch.set_num_threads(1)

taken, exchanged = TakesTurns.before_compute, Group.all_reduce


def before_compute(self: TakesTurns) -> None:
    """As of `TakesTurns`, unless turns are switched off."""
    if not (folder / "free").exists():
        taken(self)


def all_reduce(self: Group, tensor: torch.Tensor, *about: object) -> None:
    """As of `Group`, over a slower network."""
    exchanged(self, tensor, *about)
    if self.size > 1:
        time.sleep(slower_s)


TakesTurns.before_compute = before_compute  # type: ignore[method-assign]
Group.all_reduce = all_reduce  # type: ignore[assignment, method-assign]

model = torch.nn.Linear(250, max(1, round(megabytes * 1000)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
data = torch.utils.data.TensorDataset(torch.randn(4096, 250))
run = elastic.Run(model, optimizer, data, batch_size=4)
work = torch.randn(128, 128)
for (x,) in run:
    until = time.thread_time() + computes_s
    run.backward(model(x).square().mean())
    while time.thread_time() < until:
        work @ work
    run.step()
