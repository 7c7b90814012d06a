"""A trainer that does after its steps what its second argument says.

`differ`: a second optimizer, of which the run does not know, changes weights on one node. `late`: one node
changes a weight in the last steps. `busy`: rank 0 works apart, within `run.pause`, for longer than the others
wait for a silent one. The first argument is a folder for notes: rank 0 notes its trainer's name, number and
folder.
"""

import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic

where, what = Path(sys.argv[1]), sys.argv[2]
model = torch.nn.Linear(1, 1)
data = torch.utils.data.TensorDataset(torch.ones(100, 1))
other = torch.nn.Parameter(torch.ones(1))
second = torch.optim.SGD([other], lr=0.1)
run = elastic.Run(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    data,
    batch_size=4,
    compare_every=20,
    timeout_s=2.0,
)
if run.rank == 0:
    (where / "told").write_text(f"{run.name} {run.id} {run.folder}")
for (x,) in run:
    run.backward(model(x).square().mean())
    run.step()
    if what == "differ":
        other.grad = torch.ones(1) * (1 + run.rank)
        second.step()
    if what == "late" and run.position.step == 102 and run.rank == 1:
        model.weight.data += 1.0
    if what == "busy" and run.position.step == 20 and run.rank == 0:
        with run.pause():
            time.sleep(5.0)
