"""Three interleaved spirals: a multilayer perceptron on generated points, a minute on one core."""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--width", type=int, default=256)
args = parser.parse_args()
ARMS, POINTS, WIDTH = 3, 4000, args.width

torch.manual_seed(0)
radius = torch.rand(ARMS * POINTS).sqrt()
arm = torch.arange(ARMS * POINTS) % ARMS
angle = radius * 10 + arm * (2 * math.pi / ARMS) + torch.randn(ARMS * POINTS) * 0.15
points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
train, test_x, test_y = TensorDataset(points[2000:], arm[2000:]), points[:2000], arm[:2000]

model = nn.Sequential(
    nn.Linear(2, WIDTH),
    nn.ReLU(),
    nn.Linear(WIDTH, WIDTH),
    nn.ReLU(),
    nn.Linear(WIDTH, WIDTH),
    nn.ReLU(),
    nn.Linear(WIDTH, ARMS),
)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1000, gamma=0.7)


@torch.no_grad()
def accuracy() -> float:
    return (model(test_x).argmax(1) == test_y).float().mean().item()


run = elastic.Run(model, optimizer, train, batch_size=64, scheduler=scheduler)
for batch, targets in run:
    loss = nn.functional.cross_entropy(model(batch), targets)
    optimizer.zero_grad()
    loss.backward()
    run.step(loss=loss.item())
    if run.rank == 0 and run.position.step % 250 == 0:
        run.report(accuracy=accuracy())

if run.rank == 0:
    run.report(accuracy=accuracy())
    print(f"accuracy {accuracy():.4f} after {run.position.samples} samples")
