"""A small training under elastic.Run, with a mistake that the first argument names, or `right`."""

import sys
from pathlib import Path

import torch

from bftrainer import elastic

MISTAKE, BATCH = sys.argv[1], 12
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
x = torch.randn(60, 5)
y = x.prod(1, keepdim=True).tanh()
dropout = torch.nn.Dropout(0.2 if MISTAKE == "noise" else 0.0)
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), dropout, torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
log = Path("log.csv").open("w") if MISTAKE == "log" else None  # noqa: SIM115
run = elastic.Run(
    model,
    optimizer,
    torch.utils.data.TensorDataset(x, y),
    batch_size=BATCH,
    epochs=8,
    policy=elastic.FixedGlobal(BATCH),
)
seen = 0


@run.after_epoch
def look():
    found = run.evaluate(torch.utils.data.TensorDataset(x, y), lambda b: {"mse": error(model(b[0]), b[1])})
    run.report(found)


def error(out, target):
    return float(((out - target) ** 2).mean().detach())


for a, b in run:
    out = model(a)
    seen += len(a)
    loss = (out - b).square().sum() / (BATCH if MISTAKE == "sum" else len(a))
    if MISTAKE == "counter":
        loss = loss + 0.1 * min(1.0, seen / 240) * out.square().mean()
    run.backward(loss)
    run.step(loss=loss.item())
    if log:
        log.write(f"{run.position.step},{loss.item():.6f}\n")
        log.flush()
if run.rank == 0:
    torch.save({"model": model.state_dict()}, "final.pt")
