"""A trial of a study: trains, writes down which samples it uses, and reports a score that follows from x."""

import json
import os
import sys
import time
from pathlib import Path

import torch

from bftrainer import elastic

LENGTH = 400
notes, number, x, delay = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
if (notes / f"crash-{number}").exists():
    (notes / f"crash-{number}").unlink()
    sys.exit("this trial crashes once")
if (notes / f"broken-{number}").exists():
    sys.exit("this trial is broken")

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.arange(LENGTH))
run = elastic.Run(model, optimizer, data, batch_size=20, policy=elastic.FixedGlobal(20))
with (notes / f"{number}-{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1) as out:
    for (indices,) in run:
        before, rank = run.position, run.rank
        loss = model(indices[:, None] / LENGTH).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if not (notes / "fast").exists():
            time.sleep(delay)
        while (notes / f"hold-{before.samples}").exists():  # until the test has seen what it waits for
            time.sleep(0.02)
        if run.step(loss=loss.item()):
            note = {"step": before.step, "rank": rank, "weight": model.weight.item()}
            out.write(json.dumps(note | {"indices": indices.tolist()}) + "\n")
run.report(score=-((x - 0.3) ** 2))
