"""Training scripts as functions, for stage.py: what they keep besides a model and an optimiser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from bftrainer import elastic
from tests.support.stage_scripts import BATCH, LENGTH, Notes, Points, network, sgd

DECAY = 0.9


class Average:
    """An average of a model's weights, and how often it was updated."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.updates = model, 0
        self.weights = [p.detach().clone() for p in model.parameters()]

    def update(self) -> None:
        self.updates += 1
        for mine, p in zip(self.weights, self.model.parameters(), strict=True):
            mine.lerp_(p.detach(), 1.0 - DECAY)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.updates = state_dict["updates"]
        for mine, other in zip(self.weights, state_dict["weights"], strict=True):
            mine.copy_(other)


class Kept:
    """What the loop's body counts, after the step."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.steps = state_dict["steps"]


def keeps(folder: Path) -> None:
    """An average of the weights by a hook, and a count by the loop's body."""
    model, kept = network(), Kept()
    average = Average(model)
    run = elastic.Run(
        model,
        sgd(model),
        Points(),
        batch_size=BATCH,
        policy=elastic.FixedGlobal(BATCH),
        parts={"average": average, "kept": kept},
    )
    run.after_step(average.update)
    notes = Notes(folder)
    for x, y, indices in run:
        run.backward((run.model(x) - y).square().mean())
        notes.used(run, indices)
        taken = run.step()
        kept.steps += taken
        notes.over(run, taken)
    notes.save(model, run, average=average.state_dict(), kept=kept.steps)


def fake(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What a generator makes of x, in the form that a critic judges."""
    return torch.cat([x[:, :1], model(x)], 1)


def losses(
    g: torch.nn.Module, d: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, which: str
) -> torch.Tensor:
    """The loss of one of two networks that play against each other."""
    if which == "D":
        return d(fake(g, x).detach()).square().mean() - d(torch.cat([x[:, :1], y], 1)).sigmoid().mean()
    return (g(x) - y).square().mean() - d(fake(g, x)).mean()


def two(folder: Path) -> None:
    """Two networks with an optimiser each, of which one is stepped every other time only."""
    models = {"G": network(), "D": network()}
    optimizers = {name: sgd(model) for name, model in models.items()}
    schedulers = {"G": torch.optim.lr_scheduler.ExponentialLR(optimizers["G"], 0.999)}
    run = elastic.Run(
        models,
        optimizers,
        Points(),
        batch_size=BATCH,
        policy=elastic.FixedGlobal(BATCH),
        scheduler=schedulers,
    )
    notes = Notes(folder)
    for x, y, indices in run:
        step = run.position.step
        notes.used(run, indices)
        for which in ("D", "G") if step % 2 else ("D",):
            run.backward(losses(models["G"], models["D"], x, y, which), which)
            taken = run.step(which)
        notes.over(run, taken)
    notes.save(models["G"], run, critic=models["D"].state_dict(), lr=optimizers["G"].param_groups[0]["lr"])


class Ascent(torch.optim.Optimizer):
    """The first half of SAM, with the average of all nodes' gradients; `undo` goes back."""

    def __init__(self, params: Any, rho: float = 0.05) -> None:
        super().__init__(params, {"rho": rho})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """To the weights where the loss is greatest nearby."""
        there = [(p, group["rho"]) for group in self.param_groups for p in group["params"]]
        length = torch.stack([p.grad.norm() for p, _ in there]).norm()
        for p, rho in there:
            self.state[p]["before"] = p.clone()
            p.add_(p.grad * (rho / (length + 1e-12)))

    @torch.no_grad()
    def undo(self) -> None:
        """Back to the weights before."""
        for p, state in self.state.items():
            p.copy_(state["before"])
        self.state.clear()


def ascends(folder: Path) -> None:
    """Sharpness-aware minimisation: each step has two, of two optimisers of the same weights."""
    model = network()
    ascent, descent = Ascent(model.parameters()), sgd(model)
    descent.register_step_pre_hook(lambda *_: ascent.undo())
    run = elastic.Run(
        model,
        {"ascent": ascent, "descent": descent},
        Points(),
        batch_size=BATCH,
        policy=elastic.FixedGlobal(BATCH),
    )
    notes = Notes(folder)
    for x, y, indices in run:
        notes.used(run, indices)
        for which in ("ascent", "descent"):
            run.backward((model(x) - y).square().mean(), which)
            taken = run.step(which)
        notes.over(run, taken)
    notes.save(model, run)


def _wrong(
    folder: Path, each_turn: Callable[[elastic.Run, torch.optim.Optimizer], None], **options: Any
) -> None:
    """A run that compares its nodes' states every 20 steps; `each_turn` does what it should not."""
    model = network()
    optimizer = sgd(model)
    run = elastic.Run(
        model,
        optimizer,
        Points(),
        batch_size=BATCH,
        policy=elastic.FixedGlobal(BATCH),
        compare_every=20,
        **options,
    )
    notes = Notes(folder)
    for x, y, indices in run:
        run.backward((run.model(x) - y).square().mean())
        notes.used(run, indices)
        taken = run.step()
        each_turn(run, optimizer)
        notes.over(run, taken)


def own_scheduler(folder: Path) -> None:
    schedules: list[Any] = []

    def step(run: elastic.Run, optimizer: torch.optim.Optimizer) -> None:
        if not schedules:
            schedules.append(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step)))
        schedules[0].step()

    _wrong(folder, step)


def other_optimizer(folder: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    other = torch.optim.SGD([weight], lr=0.1)

    def step(run: elastic.Run, optimizer: torch.optim.Optimizer) -> None:
        weight.grad = torch.ones(3)
        other.step()

    _wrong(folder, step)


def rank_0_only(folder: Path) -> None:
    kept = Kept()

    def step(run: elastic.Run, optimizer: torch.optim.Optimizer) -> None:
        kept.steps += run.rank == 0

    _wrong(folder, step, parts={"kept": kept})


class Stream(IterableDataset):  # type: ignore[type-arg]
    """All points, one after the other, in an order of its own in each epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        points = Points()
        for i in torch.randperm(LENGTH).tolist():  # the same on all nodes
            yield points[(i + self.epoch) % LENGTH]


def streams(folder: Path) -> None:
    model = network()
    run = elastic.Run(
        model, sgd(model), DataLoader(Stream(), batch_size=5), policy=elastic.FixedGlobal(BATCH), epochs=1000
    )
    notes = Notes(folder)
    for x, y, indices in run:
        run.backward((run.model(x) - y).square().mean())
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run)


def evaluates(folder: Path) -> None:
    """A figure over all points after every epoch, for which nodes take longer than others wait for a silent
    one; what each found goes to its notes."""
    model = network()
    run = elastic.Run(
        model,
        sgd(model),
        Points(),
        batch_size=BATCH,
        policy=elastic.FixedGlobal(BATCH),
        timeout_s=1.0,
    )
    notes = Notes(folder)
    found: dict[int, float] = {}
    seen = 0

    def measure(batch: tuple[torch.Tensor, ...]) -> dict[str, float]:
        nonlocal seen
        assert not model.training and not torch.is_grad_enabled()
        seen += len(batch[0])
        return {"loss": (model(batch[0]) - batch[1]).square().mean().item()}

    @run.after_epoch
    def look() -> None:
        found[run.position.epoch] = run.evaluate(Points(), measure, batch_size=10)["loss"]
        if run.position.epoch % 10 == 0 and run.rank == 0:
            with run.pause(60.0):
                time.sleep(2.5)

    for x, y, indices in run:
        run.backward((run.model(x) - y).square().mean())
        notes.used(run, indices)
        notes.over(run, run.step())
    notes.save(model, run, found=found, seen=seen)


def stops(folder: Path) -> None:
    """Rank 0 alone has had enough after some steps."""
    model = network()
    run = elastic.Run(
        model, sgd(model), Points(), batch_size=BATCH, policy=elastic.FixedGlobal(BATCH), epochs=100_000
    )
    notes = Notes(folder)
    for x, y, indices in run:
        run.backward((run.model(x) - y).square().mean())
        notes.used(run, indices)
        notes.over(run, run.step())
        if run.rank == 0 and run.position.step >= 100:
            run.stop()
    notes.save(model, run)
