"""Cost of the comparison of the nodes' states: a sample of every tensor, and its digest.

python benchmarks/elastic_compare.py [--tensors 150 1000] [--millions 10 100]

Every tensor has the same size; the optimiser is AdamW with two tensors for each. On a GPU with --device cuda.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from bftrainer.elastic.checks.comparison import Comparison
from bftrainer.elastic.state.training_state import TrainingState


def measured(tensors: int, millions: int, device: str, repeat: int) -> tuple[float, float]:
    """Median and longest time (s) of one digest."""
    size = millions * 1_000_000 // tensors
    model = torch.nn.ParameterList([torch.randn(size, device=device) for _ in range(tensors)])
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    comparison = Comparison(100)
    comparison.enters(TrainingState({"model": model, "optimizer": optimizer}))
    taken = []
    for _ in range(repeat):
        began = time.perf_counter()
        comparison.digest(is_over=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), max(taken)


def main() -> None:
    """Measure every combination and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tensors", type=int, nargs="+", default=[150, 1000])
    parser.add_argument("--millions", type=int, nargs="+", default=[10, 100], help="of parameters")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=50)
    given = parser.parse_args()
    print(f"{'parameters':>12}{'tensors':>9}{'median ms':>11}{'longest ms':>12}")
    for millions in given.millions:
        for tensors in given.tensors:
            median, longest = measured(tensors, millions, given.device, given.repeat)
            print(f"{millions:10} M{tensors:9}{1e3 * median:11.1f}{1e3 * longest:12.1f}")


if __name__ == "__main__":
    main()
