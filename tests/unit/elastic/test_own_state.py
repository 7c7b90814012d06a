"""What a script keeps in attributes, and changes, is named: no checkpoint has it."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import pytest
import torch

from bftrainer.elastic import own_state
from bftrainer.elastic.own_state import OwnState, tell_of_lost


class Meter:
    """Averages, as many scripts have it."""

    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0


class Script:
    """Keeps this and that."""

    def __init__(self) -> None:
        self.net = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.seen, self.rate, self.nan, self.name, self.flag = 0, 0.5, float("nan"), "a", False
        self.average = copy.deepcopy(self.net)
        self.shadow = {name: p.detach().clone() for name, p in self.net.named_parameters()}
        self.history: list[float] = []
        self.window: deque[float] = deque([0.0] * 20, maxlen=20)
        self.queue, self.meter = torch.zeros(4), Meter()
        self.schedule = torch.optim.lr_scheduler.StepLR(sgd, 1)
        self.itself = self


def grown(script: Script) -> None:
    """As in a step."""
    script.seen += 1
    script.history.append(0.5)
    script.window.append(1.0)
    script.meter.sum += 2.0
    script.schedule.last_epoch += 1
    with torch.no_grad():
        script.queue[0] += 1
        script.average.weight += 1
        script.shadow["bias"] += 1


def test_what_has_changed_is_named_once() -> None:
    script = Script()
    own = OwnState(script)
    assert own.lost() == []
    script.name, script.flag = "b", True
    assert own.lost() == [], "texts and flags are not followed"
    grown(script)
    assert own.lost() == [
        *("average", "history", "itself", "meter", "queue", "schedule", "seen", "shadow", "window")
    ]
    grown(script)
    assert own.lost() == []


def test_what_is_saved_or_left_out_is_not_named() -> None:
    script = Script()
    own = OwnState(script, but={"seen", "history", "itself"}, saved=[script.schedule])
    grown(script)
    assert own.lost() == ["average", "meter", "queue", "shadow", "window"]


def test_of_a_modules_layers_numbers_count_and_the_best_of_a_metric() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    model: Any = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    model.best, model.accuracy = torchmetrics.MaxMetric(), torchmetrics.MeanMetric()
    model.kept = torchmetrics.MaxMetric()
    model.kept.persistent(True)
    own = OwnState(model)
    for metric in (model.best, model.accuracy, model.kept):
        metric.update(1.0)
    model[0].calls = 0
    model.train(mode=False)
    with torch.no_grad():
        model[0].weight += 1
        model[1].running_mean += 1
    assert own.lost() == ["best.max_value"], "the rest is in checkpoints, or begins anew with each epoch"


def test_it_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(own_state, "note_warning", told.append)
    script = Script()
    states = {"Script": OwnState(script)}
    tell_of_lost(states, "save it")
    assert not told
    script.seen = 3
    tell_of_lost(states, "save it")
    assert told == [
        "the checkpoint lacks what Script changes while it trains: itself, seen. It begins anew with every "
        "start: save it"
    ]
