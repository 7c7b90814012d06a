"""A trainer with something left to do after its loop, which a test can hold; or with an error in the loop.

Arguments: a folder of notes; the step at which it fails, and that at which it stops the run, 0 for none.
After the loop it leaves the file `after@node.pid` there, waits while there is a file `hold@node`, and leaves
`ended@node.pid`.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic

where, fails_at, stops_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
node = json.loads(os.environ["BFTRAINER_WORKER"])["node"]

model = torch.nn.Linear(1, 1)
data = torch.utils.data.TensorDataset(torch.ones(100, 1))
run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), data, batch_size=4)
for (x,) in run:
    if fails_at and run.position.step >= fails_at:
        raise ArithmeticError(f"wrong at step {fails_at}")
    run.backward(model(x).square().mean())
    run.step()
    if run.position.step == stops_at:
        run.stop()
(where / f"after@{node}.{os.getpid()}").touch()
while (where / f"hold@{node}").exists():
    time.sleep(0.02)
(where / f"ended@{node}.{os.getpid()}").touch()
