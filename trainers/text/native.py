"""The language model, elastic by bftrainer's own loop. By hand: python trainers/text/native.py"""

import argparse

import task
import torch

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=task.EPOCHS)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=5e-3)
args = parser.parse_args()

torch.manual_seed(args.seed)
train, test = task.data()
model = task.Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
steps = args.epochs * len(train) // task.BATCH
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

run = elastic.Run(
    model,
    optimizer,
    train,
    batch_size=16,  # on a node at once: alone, it accumulates two of them
    policy=elastic.FixedGlobal(task.BATCH),
    epochs=args.epochs,
    seed=args.seed,
    scheduler=scheduler,
    clip_norm=1.0,
)
for batch in run:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = task.loss(model, batch)
    run.backward(loss)
    run.step(loss=loss.item())

if run.rank == 0:
    found = task.quality(model, test)
    run.report(found)
    print(*(f"{name} {value:.4f}" for name, value in found.items()))
