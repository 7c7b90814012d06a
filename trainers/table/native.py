"""The perceptron, elastic by bftrainer's own loop. By hand: python trainers/table/native.py"""

import argparse

import task
import torch
from torch.utils.data import DataLoader

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=task.EPOCHS)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=2e-3)
args = parser.parse_args()

torch.manual_seed(args.seed)
train, test = task.data()
model = task.Model()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
loader = DataLoader(train, batch_size=task.BATCH, shuffle=True)

run = elastic.Run(
    model,
    optimizer,
    loader,
    policy=elastic.FixedPerNode(task.BATCH, lr="sqrt", warmup_steps=20),  # steps grow with the nodes
    epochs=args.epochs,
    seed=args.seed,
)
for batch in run:
    loss = task.loss(model, batch)
    run.backward(loss)
    run.step(loss=loss.item())

if run.rank == 0:
    found = task.quality(model, test)
    run.report(found)
    print(*(f"{name} {value:.4f}" for name, value in found.items()))
