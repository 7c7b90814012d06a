"""Cost of `elastic.Run` per step: beside a plain loop with a DataLoader, in turn, in one process.

    python benchmarks/step.py                    # a small model on the CPU
    python benchmarks/step.py --device cuda --width 1024
    python benchmarks/step.py --ddp --width 1024 --steps 20   # beside DistributedDataParallel of one rank

Both loops train the same model on the same samples: in blocks of steps, one loop after the other, so that
other work on the machine meets both alike. The figure is the median over the blocks of the difference.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from bftrainer import elastic

SAMPLES, BATCH = 1 << 14, 32


def made(
    width: int, device: str
) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[tuple[torch.Tensor, ...]]]:
    """A model, its optimizer and its data."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    model.to(device)
    data = TensorDataset(torch.randn(SAMPLES, 64), torch.randint(0, 10, (SAMPLES,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), loader


def plain(width: int, device: str, *, ddp: bool) -> Iterator[None]:
    """A plain loop, a step at a time."""
    model, optimizer, loader = made(width, device)
    if ddp:
        model = DistributedDataParallel(model)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
            yield


def with_run(width: int, device: str, *, ddp: bool) -> Iterator[None]:
    """The same under `elastic.Run`."""
    model, optimizer, loader = made(width, device)
    run = elastic.Run(model, optimizer, loader, epochs=1 << 30, ddp=ddp)
    for x, y in run:
        run.backward(nn.functional.cross_entropy(run.model(x.to(device)), y.to(device)))
        run.step()
        yield


def block_s(loop: Iterator[None], steps: int, device: str) -> float:
    """Mean seconds of a step, over `steps`."""
    began = time.perf_counter()
    for _ in range(steps):
        next(loop)
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps


def main() -> None:
    """Measure, and print what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100, help="of a block")
    parser.add_argument("--blocks", type=int, default=100)
    parser.add_argument("--ddp", action="store_true", help="both with DistributedDataParallel, of one rank")
    given = parser.parse_args()
    torch.set_num_threads(1)
    loops = [each(given.width, given.device, ddp=given.ddp) for each in (plain, with_run)]
    for loop in reversed(loops):  # DistributedDataParallel takes the run's process group
        block_s(loop, given.steps, given.device)
    pairs = [[block_s(loop, given.steps, given.device) * 1e3 for loop in loops] for _ in range(given.blocks)]
    for name, own in zip(("plain loop", "elastic.Run"), zip(*pairs, strict=True), strict=True):
        print(f"{name:12} {statistics.median(own):.3f} ms a step")
    more = sorted(b - a for a, b in pairs)
    low, high = more[len(more) // 4], more[-len(more) // 4 - 1]
    print(f"difference   {statistics.median(more):.3f} ms a step (quartiles {low:.3f}, {high:.3f})")
    print(f"ratio        {statistics.median(b / a for a, b in pairs):.3f}")


if __name__ == "__main__":
    main()
