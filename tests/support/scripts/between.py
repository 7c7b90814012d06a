"""A trainer of two optimisers of one loss; a node is killed between their steps, once.

Argument: a folder, in which it leaves its weights as `weights.pt`.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic

where = Path(sys.argv[1])
torch.manual_seed(0)
x = torch.randn(96, 4, dtype=torch.float64)
data = torch.utils.data.TensorDataset(x, x.prod(1).tanh())
layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
model = torch.nn.Sequential(*layers).double()
matrices = torch.optim.SGD([layers[0].weight, layers[2].weight], lr=0.3)
rest = torch.optim.SGD([layers[0].bias, layers[2].bias], lr=0.3)
both = {"matrices": matrices, "rest": rest}
run = elastic.Run(model, both, data, batch_size=12, policy=elastic.FixedGlobal(12), epochs=6)
for inputs, wanted in run:
    time.sleep(0.05)
    (model(inputs).squeeze(1) - wanted).square().mean().backward()
    run.step("matrices")
    if run.size == 2 and run.rank == 1 and not (where / "killed").exists():
        (where / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    run.step("rest")
if run.rank == 0:
    torch.save(model.state_dict(), where / "weights.pt")
