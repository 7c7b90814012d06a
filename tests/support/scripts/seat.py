"""A trainer whose workers write down what they were given."""

import json
import os
import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic

where = Path(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
data = torch.utils.data.TensorDataset(torch.rand(1000, 1))
run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.01), data, batch_size=8)
own = os.environ["SIMULATED_VISIBLE_DEVICES"]
for (x,) in run:
    run.backward(run.model(x).square().mean())
    if run.step():
        seat = {"device": own, "rank": run.rank, "local": [run.local_rank, run.local_size]}
        note = where / f"{run.generation}-{run.size}-{run.rank}.json"
        note.with_suffix(".new").write_text(json.dumps(seat))
        note.with_suffix(".new").rename(note)
    time.sleep(0.02)
