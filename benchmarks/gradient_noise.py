"""Extra cost of a step where the batch adapts: gradient noise and times are measured in it.

    python benchmarks/gradient_noise.py [--layers 4] [--width 256] [--batch 16] [--steps 32] [--turns 12]
        [--device cuda] [--dtype bfloat16]

On the CPU it counts the processor's time, with one thread; on a GPU the wall clock.

Trains a transformer in one process, with one batch throughout. Blocks of steps with and without the
measurements take turns, and each pair of neighbours gives a ratio: what slows the machine down meanwhile is
in both. Prints the median of the ratios and its quartiles, for SGD and Adam, for steps of one micro-batch
(whose gradients are compared with those of the step before) and of two (whose halves are compared). The
exchange between workers is not in it: it takes 60 bytes beside the gradients.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bftrainer import elastic

WORDS, LENGTH = 512, 32


class Text(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random words, and the word that follows each."""

    def __init__(self, batch: int, steps: int) -> None:
        self._words = torch.randint(0, WORDS, (batch * steps, LENGTH + 1))

    def __len__(self) -> int:
        return len(self._words)

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [*self._words[torch.tensor(indices)]]

    def __getitem__(self, i: int) -> torch.Tensor:
        return self._words[i]


class Model(torch.nn.Module):
    """A transformer without a mask: what it learns does not matter here."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, width)
        layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = torch.nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        found = self.out(self.layers(self.embedding(words[:, :-1])))
        return torch.nn.functional.cross_entropy(found.flatten(0, 1), words[:, 1:].flatten())


def paced(run: elastic.Run, device: str) -> Iterator[None]:
    """Take one step each time that it is asked for the next."""
    for words in run:
        run.backward(run.model(words.to(device)))
        accumulates = run.accumulating
        run.step()
        if not accumulates:
            yield


def timed(steps: Iterator[None], count: int, device: str) -> float:
    """Seconds for `count` steps."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    wait(device)
    began = clock()
    for _ in range(count):
        next(steps)
    wait(device)
    return clock() - began


def wait(device: str) -> None:
    """Wait for a GPU."""
    if device != "cpu":
        torch.cuda.synchronize()


def ratios(given: argparse.Namespace, kind: Callable[..., torch.optim.Optimizer], parts: int) -> list[float]:
    """Times with the measurements over those without, of blocks that take turns."""
    courses = []
    size = 0
    for adapts in (True, False):
        torch.manual_seed(0)
        model = Model(given.layers, given.width).to(given.device, getattr(torch, given.dtype))
        size = sum(p.numel() for p in model.parameters())
        batch, at_once = given.batch, given.batch // parts
        policy: Any = elastic.FixedGlobal(batch)
        if adapts:
            policy = elastic.Adaptive(initial=batch, max=batch, max_per_worker=at_once)
        data = Text(batch, given.steps * (given.turns + 2))
        run = elastic.Run(model, kind(model.parameters(), lr=1e-5), data, batch_size=at_once, policy=policy)
        courses.append(paced(run, given.device))
    for course in courses:
        timed(course, given.steps, given.device)  # warm up; the first decision is in it
    found = []
    for turn in range(given.turns):
        first = turn % 2
        times = {i: timed(courses[i], given.steps, given.device) for i in (first, 1 - first)}
        found.append(times[0] / times[1])
    print(f"{size / 1e6:.1f} M parameters, {1e3 * times[1] / given.steps:.1f} ms a step without", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=32, help="of a block; the ranks exchange after 16 [32]")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = {}
    for parts in (2, 1):
        for kind in (torch.optim.SGD, torch.optim.AdamW):
            found = ratios(given, kind, parts)
            low, middle, high = statistics.quantiles(found, n=4)
            name = f"{kind.__name__}, {parts} micro-batch{'es' if parts > 1 else ''}"
            table[name] = middle
            print(
                f"{name:24} {100 * (middle - 1):+5.1f} %  ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"
            )
    print(json.dumps(table))


if __name__ == "__main__":
    main()
