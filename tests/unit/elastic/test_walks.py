"""The run does not walk through the model's modules at every step: that takes long beside a short step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bftrainer import elastic
from bftrainer.elastic.checks.own_weights import TURNS


def test_no_step_walks_through_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    walks = 0
    members = torch.nn.Module._named_members

    def counted(module: torch.nn.Module, *given: Any, **more: Any) -> Any:
        nonlocal walks
        walks += 1
        return members(module, *given, **more)

    monkeypatch.setattr(torch.nn.Module, "_named_members", counted)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = elastic.Run(model, optimizer, DataLoader(TensorDataset(torch.ones(60, 2)), batch_size=5))
    for (x,) in run:
        run.backward(model(x).mean())
        run.step()
        walked.append(walks)
    assert len(walked) == 12
    assert walked[-1] == walked[TURNS], "after the turns in which weights are looked at"
