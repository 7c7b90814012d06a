"""Training scripts as functions, for stage.py: what they keep besides a model and an optimiser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bftrainer import elastic
from tests.support.stage_scripts import BATCH, Notes, Points, network, sgd

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
        if notes.over(run, taken):
            break
    notes.save(model, average=average.state_dict(), kept=kept.steps)


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
        if notes.over(run, taken):
            break
    notes.save(models["G"], critic=models["D"].state_dict(), lr=optimizers["G"].param_groups[0]["lr"])
