"""A trainer that writes down what it trained on: one line per step that this worker took part in.

Its arguments: the folder of its notes, how long a step computes, and how long it does something else then.
"""

import watched  # first: a test may hold us before the imports that take long

# isort: split
import json
import os
import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic

LENGTH = 5_000
where, delay = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.002
elsewhere = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.arange(LENGTH))
run = elastic.Run(model, optimizer, data, batch_size=16)
with Path(where, f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1) as out:
    for (indices,) in run:
        before, generation, size, rank = run.position, run.generation, run.size, run.rank
        began = time.monotonic()
        loss = model(indices[:, None] / LENGTH).square().mean()
        optimizer.zero_grad()
        loss.backward()
        watched.step(delay)
        done = time.monotonic()
        if run.step(loss=loss.item()):
            line = {"generation": generation, "size": size, "rank": rank, "step": before.step}
            line |= {"epoch": before.epoch, "cursor": before.cursor, "indices": indices.tolist()}
            line |= {"node": watched.node, "began": began, "done": done}
            out.write(json.dumps(line | {"weight": model.weight.item()}) + "\n")
            if not (Path(where) / "fast").exists():
                time.sleep(elsewhere)
