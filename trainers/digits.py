"""Handwritten digits: a small convolutional network on scikit-learn's data, a minute on one core."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
train, test_x, test_y = TensorDataset(x[300:], y[300:]), x[:300], y[:300]

model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, args.width, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(args.width, 2 * args.width, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(2 * args.width * 16, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)


@torch.no_grad()
def accuracy() -> float:
    return (model(test_x).argmax(1) == test_y).float().mean().item()


run = elastic.Run(model, optimizer, train, batch_size=args.batch_size)
for images, targets in run:
    loss = nn.functional.cross_entropy(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    run.step(loss=loss.item())
    if run.rank == 0 and run.position.step % 250 == 0:
        run.report(accuracy=accuracy())

if run.rank == 0:
    run.report(accuracy=accuracy())
    print(f"accuracy {accuracy():.4f} after {run.position.samples} samples")
