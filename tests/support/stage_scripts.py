"""Training scripts as functions, for stage.py: one model and one data set, trained in different ways.

Each ends soon after the test has made the file `stop`, and saves what it has then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from bftrainer import elastic

LENGTH, BATCH, LR = 103, 24, 0.05


class Points(Dataset):  # type: ignore[type-arg]
    """x -> a target, with the sample's index besides."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([i / LENGTH, (i * 7 % LENGTH) / LENGTH], dtype=torch.float64)
        return x, x.sin().sum(0, keepdim=True), i


def network(kind: torch.dtype = torch.float64) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(2, 16, dtype=kind), torch.nn.Tanh(), torch.nn.Linear(16, 1, dtype=kind)
    return torch.nn.Sequential(*layers)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)


def own_rate(optimizer: torch.optim.Optimizer, step: int) -> None:
    """The learning rate that some scripts set for the step after `step` others, as many do in their loops."""
    for group in optimizer.param_groups:
        group["lr"] = LR / (1 + step % 7)


class Notes:
    """One line per micro-batch whose step was taken, and what there is after the last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out = (folder / f"{os.getpid()}.jsonl").open("a", buffering=1)
        self._pending: list[int] = []
        self._at = (-1, -1)  # step and generation: a step that comes again is a new one

    def used(self, run: elastic.Run, indices: torch.Tensor) -> None:
        """Before `run.step`: the samples of the present micro-batch."""
        if self._at != (at := (run.position.step, run.generation)):
            self._at, self._pending = at, []
        self._pending += indices.tolist() if run.weight else []

    def over(self, run: elastic.Run, taken: bool) -> None:
        """After `run.step`: all members stop after the same step, soon after the test has said so."""
        if taken:
            line = {"step": self._at[0], "indices": self._pending, "size": run.size}
            self._out.write(json.dumps(line) + "\n")
        time.sleep(0.002)
        if (self._folder / "stop").exists():
            run.stop()

    def save(self, model: torch.nn.Module, run: elastic.Run, **more: Any) -> None:
        """At the end: the weights, the steps that were taken, and `more`."""
        ended = {"model": model.state_dict(), "steps": run.position.step, **more}
        torch.save(ended, self._folder / f"{os.getpid()}.pt")


def _train(
    folder: Path,
    before_step: Callable[[torch.optim.Optimizer, int], None] = lambda optimizer, step: None,
    **options: Any,
) -> None:
    model = network()
    optimizer = sgd(model)
    options = {"data": Points(), "batch_size": BATCH, "policy": elastic.FixedGlobal(BATCH), **options}
    run = elastic.Run(model, optimizer, **options)
    notes = Notes(folder)
    for x, y, indices in run:
        before_step(optimizer, run.position.step)
        run.backward((run.model(x) - y).square().mean())
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run)


def plain(folder: Path) -> None:
    _train(folder)


def partial(folder: Path) -> None:
    _train_partial(folder)


def partial_mixed(folder: Path) -> None:
    """bfloat16, a GradScaler, micro-batches, Adam, and one rank's gradient that overflows now and then."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=20)
    _train_partial(folder, torch.float32, scaler=scaler, clip_norm=1.0, batch_size=7)


def deep(kind: torch.dtype) -> torch.nn.Module:
    """Four layers, and one that gets no gradient."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(a, b, dtype=kind) for a, b in ((2, 16), (16, 16), (16, 16), (16, 1))]
    model = torch.nn.Sequential(*(m for each in layers for m in (each, torch.nn.Tanh())))
    model.register_parameter("unused", torch.nn.Parameter(torch.zeros(3, dtype=kind)))
    return model


def _train_partial(folder: Path, kind: torch.dtype = torch.float64, **options: Any) -> None:
    """Notes how many parameters have got gradients in each step."""
    torch.set_num_threads(1)  # several workers share the machine's cores
    model = deep(kind)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    how = elastic.Partial(by="modules", warmup_steps=2)
    options = {"batch_size": BATCH, **options}
    run = elastic.Run(model, adam, Points(), policy=elastic.FixedGlobal(BATCH), partial=how, **options)
    notes = Notes(folder)
    computed: dict[int, list[int]] = {}
    for x, y, indices in run:
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.float32):
            loss = (run.model(x.to(kind)) - y.to(kind)).square().mean()
        run.backward(loss * (float("inf") if "scaler" in options and 17 in indices.tolist() else 1.0))
        at = run.position.step
        computed[at] = [run.size, sum(p.grad is not None for p in model.parameters())]
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run, computed=computed, adam=adam.state_dict())


def ddp(folder: Path) -> None:
    _train(folder, ddp={"bucket_cap_mb": 0.0001})


def accumulate(folder: Path) -> None:
    _train(folder, batch_size=5)


def ddp_accumulate(folder: Path) -> None:
    _train(folder, batch_size=5, ddp=True)


def workers(folder: Path) -> None:
    _train(folder, data=DataLoader(Points(), batch_size=BATCH, shuffle=True, num_workers=2), batch_size=None)


FROZEN_AT = 1
"""The step after which `frozen_norm` has its normalisation frozen."""


def frozen_norm(folder: Path) -> None:
    """Batch normalisation that a hook puts into evaluation mode."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2, dtype=torch.float64), *network())
    run = elastic.Run(model, sgd(model), Points(), batch_size=BATCH, policy=elastic.FixedGlobal(BATCH))

    @run.after_step
    def freeze() -> None:
        if run.position.step == FROZEN_AT:
            model[0].eval()

    notes = Notes(folder)
    for x, y, indices in run:
        run.backward((model(x) - y).square().mean())
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run, trains=model[0].training)


def by_hand(folder: Path) -> None:
    """All-reduce by the script, as in a program that has never heard of elasticity."""
    model = network()
    run = elastic.Run(
        model, sgd(model), Points(), batch_size=BATCH, policy=elastic.FixedGlobal(BATCH), average=False
    )
    notes = Notes(folder)
    for x, y, indices in run:
        (model(x) - y).square().mean().backward()
        with run.together():
            for p in model.parameters():
                assert p.grad is not None
                p.grad *= run.weight
                dist.all_reduce(p.grad)
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run)


def mixed(folder: Path) -> None:
    """bfloat16 and a GradScaler; one rank's gradient overflows now and then."""
    model = network(torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=20)
    run = elastic.Run(
        model,
        sgd(model),
        Points(),
        batch_size=5,
        policy=elastic.FixedGlobal(BATCH),
        scaler=scaler,
        clip_norm=1.0,
    )
    notes = Notes(folder)
    for x, y, indices in run:
        with torch.autocast("cpu", torch.bfloat16):
            loss = (run.model(x.float()) - y.float()).square().mean()
        run.backward(loss * (float("inf") if 17 in indices.tolist() else 1.0))
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run, scaler=scaler.state_dict())


def few(folder: Path) -> None:
    """Fewer samples than ranks at every step, and a learning rate that the loop's body sets."""
    _train(folder, own_rate, policy=elastic.FixedGlobal(2), ddp=True)


def few_flat(folder: Path) -> None:
    _train(folder, own_rate, policy=elastic.FixedGlobal(2))


class Passes(torch.nn.Module):
    """Counts its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x


def few_passes(folder: Path) -> None:
    """Fewer samples than ranks at every step, and layers that change with every forward pass."""
    torch.manual_seed(0)
    normed = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(2, 2, dtype=torch.float64))
    model = torch.nn.Sequential(Passes(), normed, torch.nn.Linear(2, 1, dtype=torch.float64))
    run = elastic.Run(model, sgd(model), Points(), batch_size=2, policy=elastic.FixedGlobal(2))
    notes = Notes(folder)
    for x, y, indices in run:
        run.backward((model(x) - y).square().mean())
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run)


def few_by_hand(folder: Path) -> None:
    global BATCH  # noqa: PLW0603  of this process
    BATCH = 2
    by_hand(folder)
