"""A trainer whose nodes add something up after each epoch; one is killed just before that, once.

Arguments: a folder, in which it leaves the sums of all epochs as `sums.json`; the number of nodes from which
on the last rank is killed.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from bftrainer import elastic

where, least = Path(sys.argv[1]), int(sys.argv[2])


class Sums:
    """What the epochs' sums were."""

    def __init__(self):
        self.found = []

    def state_dict(self):
        return {"found": [*self.found]}

    def load_state_dict(self, state):
        self.found = [*state["found"]]


model, sums = torch.nn.Linear(1, 1), Sums()
data = torch.utils.data.TensorDataset(torch.ones(40, 1))
policy = elastic.FixedGlobal(4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = elastic.Run(model, optimizer, data, batch_size=4, policy=policy, epochs=8, parts={"sums": sums})


@run.after_epoch
def add_up():
    mine = torch.tensor([float(len(range(run.rank, 40, run.size)))])
    if run.size >= least and run.rank == run.size - 1 and not (where / "killed").exists():
        (where / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with run.together():
        if run.size > 1:
            dist.all_reduce(mine)
    sums.found.append(float(mine))


for (x,) in run:
    time.sleep(0.05)
    run.backward(model(x).square().mean())
    run.step()
if run.rank == 0:
    (where / "sums.json").write_text(json.dumps(sums.found))
