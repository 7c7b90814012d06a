"""Accuracy lost and time saved by partial back-propagation (Kumar et al. 2021, tables 1 and 3).

    python benchmarks/partial.py accuracy [--models mlp cnn ...] [--workers 2 4 8] [--seeds 5] [--steps 300]
    python benchmarks/partial.py savings [--device cuda] [--dtype bfloat16]
    python benchmarks/partial.py convergence [--seeds 5] [--steps 300]

Workers are simulated in one process, one after the other, by the library's own order and roles: what a worker
computes does not depend on where it runs. `accuracy` trains each model on digits that scikit-learn ships,
on Python's own sources, or on a table that is generated. Each method has the best of three learning rates,
by seed 0 and the first k. Ways: full; partial, with the learning rate by share (as in the paper) and
without; and, at the compute time of partial back-propagation, full with fewer steps and full with fewer
workers. `savings` freezes what lies before a fraction of one model, as table 1 does; it alone takes
`--device`. `convergence` is figure 3.
"""

from __future__ import annotations

import argparse
import statistics
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from sklearn.datasets import load_digits, make_classification
from torch import nn
from torch.nn import functional

from bftrainer.elastic.partial.exchange import sent
from bftrainer.elastic.partial.order import GradientOrder, ordered, role
from bftrainer.elastic.partial.trial import TrialWatch

EACH, TESTED, LENGTH, LETTERS = 8, 512, 32, 96
RATES = (1 / 3, 1.0, 3.0)
Data = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """A model with its data, its optimizer and a learning rate around which rates are tried."""

    model: Callable[[], nn.Module]
    data: Callable[[], Data]
    rate: float
    adam: bool = False


class Residual(nn.Module):
    def __init__(self, width: int, stride: int = 1) -> None:
        super().__init__()
        before = width // stride
        self.one, self.norm_one = nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.two, self.norm_two = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.past = nn.Conv2d(before, width, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm_one(self.one(x)))
        return functional.relu(self.norm_two(self.two(y)) + self.past(x))


def resnet(width: int, blocks: int, channels: int = 1, classes: int = 10) -> nn.Module:
    """A ResNet with `blocks` blocks in each of three stages."""
    stem = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    stages = [Residual(width * 2**s, 2 if s and not b else 1) for s in range(3) for b in range(blocks)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 4, classes)]
    return nn.Sequential(*stem, *stages, *head)


def cnn() -> nn.Module:
    """Like VGG: convolutions without branches, and two linear layers."""
    sizes = (1, 16, 16, 32, 32)
    layers = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairwise(sizes)]
    layers[1].append(nn.MaxPool2d(2))
    layers[3].append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def mlp(inputs: int, outputs: int) -> nn.Module:
    sizes = (inputs, 64, 64, 64, 64)
    hidden = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
    return nn.Sequential(*hidden, nn.Linear(64, outputs))


class TextCnn(nn.Module):
    """Convolutions of three widths over letters, as CNNText has over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(LETTERS, 24)
        self.first = nn.Conv1d(24, 32, 3, padding=1)
        self.branches = nn.ModuleList([nn.Conv1d(32, 24, width, padding=width // 2) for width in (3, 5, 7)])
        self.out = nn.Linear(72, 10)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first(self.embed(letters).transpose(1, 2)))
        return self.out(torch.cat([functional.relu(each(y)).amax(2) for each in self.branches], 1))


class Lstm(nn.Module):
    """Two layers, as LSTMText has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(LETTERS, 24), nn.Linear(48, 10)
        self.one, self.two = nn.LSTM(24, 48, batch_first=True), nn.LSTM(48, 48, batch_first=True)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.out(self.two(self.one(self.embed(letters))[0])[0].mean(1))


class Transformer(nn.Module):
    """Says the next letter; its output layer has the embedding's weights."""

    def __init__(self, width: int = 48, layers: int = 4) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(LETTERS, width), nn.Linear(width, LETTERS)
        self.head.weight = self.embed.weight
        self.place = nn.Parameter(torch.zeros(LENGTH, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        nn.init.normal_(self.embed.weight, std=0.05)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        y = self.embed(letters) + self.place
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=y.device)
        for block in self.blocks:
            y = block(y, src_mask=mask, is_causal=True)
        return self.head(y).transpose(1, 2)


def digits(*, flat: bool, noise: float = 0.0) -> Data:
    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32) / 8 - 1
    x = x + noise * torch.randn(x.shape, generator=torch.Generator().manual_seed(5))
    return (x if flat else x.view(-1, 1, 8, 8)), torch.tensor(labels)


def table() -> Data:
    made = {"n_informative": 20, "n_classes": 8, "n_clusters_per_class": 3, "random_state": 1}
    x, y = make_classification(6000, 32, class_sep=1.0, **made)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def letters(each: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of ten modules of Python's library, and which module each is of."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = (
        "argparse",
        "ast",
        "datetime",
        "difflib",
        "inspect",
        "doctest",
        "locale",
        "pickle",
        "socket",
        "typing",
    )
    x, y = [], []
    for label, name in enumerate(names):
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        codes = torch.tensor([min(max(ord(c) - 32, 0), LETTERS - 1) for c in text])
        for start in torch.linspace(0, len(codes) - LENGTH - 1, each).long().tolist():
            x.append(codes[start : start + LENGTH + 1])
            y.append(label)
    return torch.stack(x), torch.tensor(y)


def text() -> Data:
    x, y = letters()
    return x[:, :LENGTH], y


def next_letters() -> Data:
    x, _ = letters()
    return x[:, :-1], x[:, 1:]


TASKS: dict[str, Task] = {
    "mlp": Task(lambda: mlp(64, 10), lambda: digits(flat=True, noise=0.7), 0.05),
    "cnn": Task(cnn, lambda: digits(flat=False, noise=0.7), 0.05),
    "resnet": Task(lambda: resnet(8, 1), lambda: digits(flat=False, noise=0.7), 0.05),
    "table": Task(lambda: mlp(32, 8), table, 0.05),
    "textcnn": Task(TextCnn, text, 0.003, adam=True),
    "lstm": Task(Lstm, text, 0.006, adam=True),
    "transformer": Task(Transformer, next_letters, 0.003, adam=True),
}


def named(model: nn.Module) -> dict[str, torch.Tensor]:
    return {f".{name}": p for name, p in model.named_parameters()}


def order_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor, by: str = "time") -> GradientOrder:
    """The order in which a backward pass completes gradients, as a run's trial steps find it."""
    parameters, best = named(model), None
    for _ in range(5):
        watch = TrialWatch({"": model})
        watch.watch(parameters)
        loss = functional.cross_entropy(model(x), y)
        watch.before_backward()
        loss.backward()
        found = watch.read(parameters)
        if best is None or max(s for _, s in found) < max(s for _, s in best):
            best = found
        model.zero_grad()
    return ordered(completed(parameters, best or []), by)


def completed(parameters: dict[str, torch.Tensor], found: Sequence[tuple[float, float]]) -> list:
    from bftrainer.elastic.partial.order import Completed

    return [Completed(name, index, s) for name, (index, s) in zip(parameters, found, strict=True)]


def freeze(parameters: dict[str, torch.Tensor], order: GradientOrder, count: int) -> None:
    for i, name in enumerate(order.names):
        parameters[name].requires_grad_(i < count)


@dataclass
class Way:
    """Training of a model: number of workers, of steps, in parts or not."""

    workers: int
    steps: int
    partial: bool = False
    by_share: bool = False


def train(
    task: Task, way: Way, order: GradientOrder, seed: int, factor: float, looks: int = 1
) -> list[float]:
    """Accuracy in % (of the transformer, bits a letter) at `looks` times."""
    torch.manual_seed(seed)
    model, (x, y) = task.model(), task.data()
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(99))
    x, y = x[shuffled], y[shuffled]
    test, rest = (x[:TESTED], y[:TESTED]), (x[TESTED:], y[TESTED:])
    norms = any(isinstance(each, nn.BatchNorm2d) for each in model.modules())
    parameters = named(model)
    groups = [{"params": [p]} for p in parameters.values()]
    base = task.rate * factor
    optimizer: torch.optim.Optimizer = (
        torch.optim.Adam(groups, lr=base)
        if task.adam
        else torch.optim.SGD(groups, lr=base, momentum=0.9, weight_decay=1e-4)
    )
    found: list[float] = []
    draw = torch.Generator().manual_seed(seed)
    for step in range(way.steps):
        chosen = torch.randint(len(rest[0]), (way.workers, EACH), generator=draw)
        if not way.partial and not norms:  # the mean over all workers is that over all samples
            chosen = chosen.view(1, -1)
        sums: dict[str, torch.Tensor] = {}
        counts = dict.fromkeys(parameters, 0)
        for worker in range(len(chosen)):
            share = role(worker, step, way.workers) / way.workers if way.partial else 1.0
            count = order.count(share)
            freeze(parameters, order, count)
            functional.cross_entropy(model(rest[0][chosen[worker]]), rest[1][chosen[worker]]).backward()
            for name in order.names[:count]:
                gradient = parameters[name].grad
                if gradient is not None:
                    sums[name] = sums[name] + gradient if name in sums else gradient
                    counts[name] += 1
                parameters[name].grad = None
        rate = base * (0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / way.steps)).item()))
        for (name, p), group in zip(parameters.items(), optimizer.param_groups, strict=True):
            p.requires_grad_(True)
            p.grad = sums[name] / counts[name] if name in sums else None
            group["lr"] = rate * (counts[name] / way.workers if way.by_share else 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) * looks % way.steps < looks:
            found.append(tested(model, *test))
    return found


@torch.no_grad()
def tested(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    said = model(x)
    model.train()
    if y.dim() > 1:
        return functional.cross_entropy(said, y).item() / 0.6931471805599453
    return (said.argmax(1) == y).float().mean().item() * 100


def seconds(model: nn.Module, order: GradientOrder, x: torch.Tensor, y: torch.Tensor, share: float) -> float:
    """The shortest time of a forward and a backward pass with the last `share` trained."""
    parameters, found = named(model), []
    freeze(parameters, order, order.count(share))
    for _ in range(40):
        began = time.process_time()
        functional.cross_entropy(model(x), y).backward()
        found.append(time.process_time() - began)
        model.zero_grad()
    freeze(parameters, order, len(order.names))
    return min(found)


def accuracy(names: Sequence[str], workers: Sequence[int], seeds: int, steps: int) -> None:
    print(
        "| model | k | compute | full | partial, rate by share | partial | full, fewer steps "
        "| full, fewer workers |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        task = TASKS[name]
        torch.manual_seed(0)
        model, (x, y) = task.model(), task.data()
        some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:EACH]
        order = order_of(model, x[some], y[some])
        best: dict[str, float] = {}
        sign = -1 if y.dim() > 1 else 1
        for k in workers:
            times = [seconds(model, order, x[some], y[some], (j + 1) / k) for j in range(k)]
            part = sum(times) / (k * times[-1])
            ways = {
                "full": Way(k, steps),
                "share": Way(k, steps, partial=True, by_share=True),
                "partial": Way(k, steps, partial=True),
                "steps": Way(k, max(1, round(steps * part))),
                "workers": Way(max(1, round(k * part)), steps),
            }
            cells = []
            for kind, way in ways.items():
                method = kind if way.partial else "full"
                if method not in best:
                    tries = {f: sign * train(task, way, order, 0, f)[-1] for f in RATES}
                    best[method] = max(tries, key=lambda f: tries[f])
                found = [train(task, way, order, 1 + seed, best[method])[-1] for seed in range(seeds)]
                spread = statistics.stdev(found) if seeds > 1 else 0.0
                more = f" (k = {way.workers})" if kind == "workers" else ""
                cells.append(f"{statistics.mean(found):.2f} ± {spread:.2f}{more}")
            print(f"| {name} | {k} | {part:.2f} | {' | '.join(cells)} |", flush=True)


def savings(device: str, dtype: str) -> None:
    """Time, memory and bytes by fraction, beside table 1."""
    torch.manual_seed(0)
    is_gpu = device != "cpu"
    size, batch = (64, 64) if is_gpu else (32, 16)
    model = resnet(64 if is_gpu else 16, 6 if is_gpu else 3, channels=3, classes=100).to(device)
    x = torch.randn(batch, 3, size, size, device=device)
    y = torch.randint(100, (batch,), device=device)
    cast = torch.autocast(device, getattr(torch, dtype), enabled=dtype != "float32")
    with cast:
        order = order_of(model, x, y)
    parameters = named(model)
    sizes = [parameters[name].numel() for name in order.names]
    print(f"ResNet of {sum(sizes) / 1e6:.1f} million weights, batch {batch}, {device}, {dtype}")
    print("| % back-propagated | forward, ms | backward, ms | saved activations, MB | gradient, MB |")
    print("|---|---|---|---|---|")
    for percent in (100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5):
        count = order.count(percent / 100)
        freeze(parameters, order, count)
        times, saved = [], dict[int, int]()
        for turn in range(9):
            hooks = torch.autograd.graph.saved_tensors_hooks(noting(saved if turn == 0 else {}), lambda t: t)
            wait(device)
            began = time.perf_counter()
            with cast, hooks:
                loss = functional.cross_entropy(model(x), y)
            wait(device)
            middle = time.perf_counter()
            loss.backward()
            wait(device)
            times.append((middle - began, time.perf_counter() - middle))
            model.zero_grad()
        forward, backward = (statistics.median(each[1:]) * 1000 for each in zip(*times, strict=True))
        activations, gradient = sum(saved.values()) / 1e6, sum(sizes[:count]) * 4 / 1e6
        print(
            f"| {percent} | {forward:.2f} | {backward:.2f} | {activations:.2f} | {gradient:.2f} |", flush=True
        )
    for k in (2, 4, 8):
        lengths = [sum(sizes[: order.count((j + 1) / k)]) for j in range(k)]
        full = 2 * (k - 1) / k * sum(sizes)
        print(f"bytes that a worker sends, k = {k}: {sent(lengths, sum(sizes)) / full * 100:.0f} % of full")


def noting(saved: dict[int, int]) -> Callable[[torch.Tensor], torch.Tensor]:
    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    return note


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def convergence(seeds: int, steps: int, looks: int = 6) -> None:
    """Accuracy as steps go by, by the number of workers, each with the same batch: figure 3."""
    task = TASKS["resnet"]
    torch.manual_seed(0)
    model, (x, y) = task.model(), task.data()
    order = order_of(model, x[:EACH], y[:EACH])
    print(f"| workers | {' | '.join(str(steps * (i + 1) // looks) for i in range(looks))} |")
    print("|---" * (looks + 1) + "|", flush=True)
    for k in (1, 2, 4, 8):
        found = [train(task, Way(k, steps, partial=k > 1), order, 1 + s, 1.0, looks) for s in range(seeds)]
        means = [statistics.mean(each) for each in zip(*found, strict=True)]
        print(f"| {k} | {' | '.join(f'{mean:.1f}' for mean in means)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("accuracy", "savings", "convergence"), default="savings")
    parser.add_argument("--models", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.what == "accuracy":
        accuracy(args.models, args.workers, args.seeds, args.steps)
    elif args.what == "savings":
        savings(args.device, args.dtype)
    else:
        convergence(args.seeds, args.steps)


if __name__ == "__main__":
    main()
