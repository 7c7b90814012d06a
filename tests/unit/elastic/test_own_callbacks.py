"""Whether a script under a framework hears that no checkpoint has what its own callbacks keep."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from bftrainer.elastic.frameworks.own_callbacks import OwnCallbacks
from bftrainer.messages.lightning import OWN_CALLBACK


class Average:
    """As scripts have it: it is made when the training begins. `state_dict` is as a framework has it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.seen = model, 0
        self.best: float | None = None

    def begin(self) -> None:
        self.average = copy.deepcopy(self.model)

    def step(self) -> None:
        with torch.no_grad():
            for mine, new in zip(self.average.parameters(), self.model.parameters(), strict=True):
                mine.lerp_(new, 0.1)

    def state_dict(self) -> dict[str, Any]:
        return {}


class Kept(Average):
    """It has its average in checkpoints, and a count in none."""

    def step(self) -> None:
        super().step()
        self.seen += 1

    def state_dict(self) -> dict[str, Any]:
        return {"average": self.average.state_dict(), **self.average.state_dict()}


class Nothing(Average):
    """It keeps nothing."""

    def step(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "told"),
    [(Average, "no checkpoint has it: Average.average."), (Nothing, ""), (Kept, "Kept.seen")],
)
def test_what_a_callback_keeps_is_told_once_it_has_changed(
    capfd: pytest.CaptureFixture[str], kind: type[Average], told: str
) -> None:
    model = torch.nn.Linear(2, 1)
    callback = kind(model)
    watched = OwnCallbacks(OWN_CALLBACK)
    watched.begin([callback, torch.nn.Linear(1, 1)], model)
    callback.begin()
    for _ in range(22):
        with torch.no_grad():
            model.weight.add_(1)
        callback.step()
        watched.after_step()
    said = "".join(capfd.readouterr())
    assert said.count("BFT-431") == bool(told) and told in said
