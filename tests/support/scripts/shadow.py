"""A trainer whose state is large enough to be streamed; writes down each step's samples and state.

shadow.py MODEL FOLDER [DELAY_S] [CHUNK]: CHUNK bytes travel per step, however long the step is.
"""

import json
import os
import pickle
import sys
import time
import zlib
from pathlib import Path

import torch
from torch import nn

from bftrainer import elastic
from bftrainer.elastic.state import chain

LENGTH = 5_000
kind, where = sys.argv[1:3]
delay = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
if len(sys.argv) > 4:
    chain.MESSAGE = int(sys.argv[4]) // chain.AHEAD
    chain.Passage.open = chain.Passage.end


class Odd(nn.Module):
    """Tied, frozen, unused and scalar parameters, types of several widths, and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(512, 1024, bias=False)
        self.out = nn.Linear(512, 1024, bias=False)
        self.out.weight = self.embedding.weight
        self.statistics = nn.BatchNorm1d(1024)
        self.frozen = nn.Linear(1024, 512)
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(64, 64)
        self.late = nn.Linear(1024, 64)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.coarse = nn.Linear(512, 33, dtype=torch.bfloat16)
        self.fine = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.image = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        hidden = self.frozen(self.statistics(self.embedding(x))) * self.scale
        y = self.out(hidden).square().mean() + self.coarse(hidden.bfloat16()).float().square().mean()
        if step > 20:  # first gradients come late
            y = y + self.late(self.statistics(self.embedding(x))).square().mean()
        return y + self.fine.sum().square() + self.image(torch.ones(1, 3, 4, 4) * y.detach()).sum()


torch.manual_seed(os.getpid())  # what a newcomer begins with is of no account
torch.set_num_threads(1)
scheduler = None
if kind == "odd":
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-2)
else:
    model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 2048), nn.Linear(2048, 8))
    if kind == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 100))
    elif kind == "whole":  # not known to treat every element by itself
        optimizer = type("Own", (torch.optim.SGD,), {})(model.parameters(), lr=1e-2, momentum=0.9)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def digest() -> int:
    """Of everything but the statistics, which are each node's own."""
    state = optimizer.state_dict()
    parts = [p.detach().reshape(-1).contiguous().view(torch.uint8).numpy() for p in model.parameters()]
    for index in sorted(state["state"]):
        for key, value in sorted(state["state"][index].items()):
            parts += [key.encode()]
            parts += [value.reshape(-1).view(torch.uint8).numpy()] if isinstance(value, torch.Tensor) else []
    rest = (state["param_groups"], scheduler.state_dict() if scheduler else None, run.position)
    total = zlib.crc32(pickle.dumps(str(rest)))
    for part in parts:
        total = zlib.crc32(part, total)
    return total


data = torch.utils.data.TensorDataset(torch.arange(LENGTH))
run = elastic.Run(model, optimizer, data, batch_size=16, scheduler=scheduler, ddp=kind == "ddp")
with Path(where, f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1) as out:
    for (indices,) in run:
        before, generation, size, rank = run.position, run.generation, run.size, run.rank
        x = torch.sin(indices[:, None] * torch.arange(1, 513) / 100)
        loss = model(x, before.step) if kind == "odd" else run.model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        time.sleep(delay)
        if run.step(loss=loss.item()):
            line = {"generation": generation, "size": size, "rank": rank, "step": before.step}
            line |= {"epoch": before.epoch, "cursor": before.cursor, "indices": indices.tolist()}
            line |= {"digest": digest()}
            if kind == "odd":
                line["seen"] = int(model.statistics.num_batches_tracked)
            out.write(json.dumps(line) + "\n")
            if kind == "clamped":  # shadows do not see this
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.mul_(0.999)
