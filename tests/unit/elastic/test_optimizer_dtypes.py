"""What optimisers keep has the precision that it had."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bftrainer.elastic.state.training_state import TrainingState


class Masters(torch.optim.Optimizer):
    """Weights in bfloat16, with a copy in single precision and a count."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make both."""
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("master", p.detach().float() + 1e-4)
            self.state[p]["seen"] = self.state[p].get("seen", torch.tensor(1001, dtype=torch.int64))


def begun() -> tuple[TrainingState, Masters]:
    """A script's start."""
    model = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    optimizer = Masters(model.parameters())
    return TrainingState({"model": model, "optimizer": optimizer}), optimizer


@pytest.mark.parametrize("way", ["checkpoint", "newcomer"])
def test_what_an_optimizer_keeps_stays_as_precise(way: str) -> None:
    state, optimizer = begun()
    optimizer.step()
    other, taken = begun()
    if way == "checkpoint":
        other.restore(state.snapshot())
    else:
        other.restore_small(state.small())
    for before, after in zip(optimizer.state.values(), taken.state.values(), strict=True):
        assert {key: value.dtype for key, value in after.items()} == {
            key: value.dtype for key, value in before.items()
        }
        assert after["seen"] == 1001
        if way == "checkpoint":
            assert torch.equal(before["master"], after["master"])
