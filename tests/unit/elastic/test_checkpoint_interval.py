"""How often a run reports and makes checkpoints: a costly one only as often as pays."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.elastic.loop.progress import LOSS_EVERY_S, Progress, checkpoint_interval_s
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState

ABOUT: dict[str, Any] = {
    "fd": -1,
    "trainer": 1,
    "node": "n",
    "generation": 1,
    "address": "127.0.0.1",
    "samples": None,
}


class Told:
    """The agent's end of a channel, which keeps of all that it is told the rates."""

    def __init__(self) -> None:
        self.rates = list[float | None]()

    def send(self, kind: str, **fields: Any) -> None:
        self.rates.append(fields["rate"])


@given(
    every_s=st.floats(0.01, 1000),
    cost_s=st.floats(0, 100),
    other_s=st.floats(0.01, 10_000),
)
def test_no_other_interval_loses_less(every_s: float, cost_s: float, other_s: float) -> None:
    def lost(interval_s: float) -> float:
        return cost_s / interval_s + interval_s / (2 * LOSS_EVERY_S)

    found = checkpoint_interval_s(every_s, cost_s)
    assert found >= every_s
    assert lost(found) <= lost(max(other_s, every_s)) * (1 + 1e-9)


class Slow:
    """A saver whose checkpoints stop training for 0.48 s, by a clock of its own."""

    error, busy, saved = "", False, None

    def __init__(self) -> None:
        self.now, self.at = 1000.0, list[float]()

    def prepare(self) -> None: ...

    def save(self, generation: int, *, wait: bool) -> None:
        self.at.append(self.now)
        self.now += 0.48


def test_a_checkpoint_that_took_long_is_not_repeated_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = torch.nn.Linear(1, 1)
    state = TrainingState({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
    slow = Slow()
    monkeypatch.setattr("bftrainer.elastic.loop.progress.time.monotonic", lambda: slow.now)
    orders = Orders(**ABOUT, checkpoint_dir=str(tmp_path), checkpoint_every_s=5.0)
    found = Progress(state, Told(), orders)  # type: ignore[arg-type]
    found.saver = slow  # type: ignore[assignment]
    for step in range(60):
        found.after_step(Position(step=step, samples=step), slow.now, 1, 1)
        slow.now += 1.0
    assert [round(b - a) for a, b in itertools.pairwise([1000.0, *slow.at])] == [5, 24, 24]


def test_of_a_pause_that_began_with_other_members_only_the_rest_is_taken_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = torch.nn.Linear(1, 1)
    state = TrainingState({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
    monkeypatch.setattr("bftrainer.elastic.loop.progress.time.monotonic", lambda: 0.0)
    told = Told()
    orders = Orders(**ABOUT, checkpoint_dir=str(tmp_path), checkpoint_every_s=1e6)
    found = Progress(state, told, orders)  # type: ignore[arg-type]
    found.saver = Slow()  # type: ignore[assignment]
    found.busy(60.0, 10.0)
    found.restart(12.0)
    found.busy(0.0, 15.0)
    found.after_step(Position(step=1, samples=10), 15.6, 2, 1)
    found.after_step(Position(step=2, samples=40), 16.6, 2, 1)
    assert told.rates == [None, pytest.approx(30.0)], "it has trained for 0.6 s, and for 1 s more"
