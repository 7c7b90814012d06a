"""A trainer for benchmarks/turns.py: it computes for a time on its node's device, and exchanges gradients.

Its arguments: seconds that it computes in a step; megabytes of gradients; seconds that each exchange takes
longer, as over a slow network; and a folder. While a file `free` is there, it takes no turns.

The device is made up, so that other work on the machine changes little: a file that a worker locks for 5 ms
at a time, which is how a GPU shares its time between processes.
"""

from __future__ import annotations

import fcntl
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
torch.set_num_threads(1)
torch.manual_seed(0)  # all nodes have the same data
SLICE_S, GAP_S = 5e-3, 2e-4

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
with (folder / f"device-{node}").open("w") as device:
    for (x,) in run:
        run.backward(model(x).square().mean())
        for _ in range(round(computes_s / SLICE_S)):
            fcntl.flock(device, fcntl.LOCK_EX)
            time.sleep(SLICE_S)
            fcntl.flock(device, fcntl.LOCK_UN)
            if (folder / "free").exists():
                time.sleep(GAP_S)  # for the other to get it
        run.step()
