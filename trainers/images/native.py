"""The ResNet, elastic by bftrainer's own loop. By hand: python trainers/images/native.py"""

import argparse

import task
import torch

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=task.EPOCHS)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

torch.manual_seed(args.seed)
train, test = task.data()
model = task.ResNet()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
steps = args.epochs * len(train) // task.BATCH
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=steps + 1)

run = elastic.Run(
    model,
    optimizer,
    train,
    batch_size=task.BATCH,
    policy=elastic.FixedGlobal(task.BATCH),  # the same steps on any number of nodes
    epochs=args.epochs,
    seed=args.seed,
    scheduler=scheduler,
    ddp=True,
)
for batch in run:
    loss = task.loss(run.model, batch)
    run.backward(loss)
    run.step(loss=loss.item())

if run.rank == 0:
    found = task.quality(model, test)
    run.report(found)
    print(*(f"{name} {value:.4f}" for name, value in found.items()))
