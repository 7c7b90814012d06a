"""Layers that a script puts into evaluation mode while it trains: newcomers and restarts follow."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic
from bftrainer.elastic.train.modes import Modes, evaluating
from tests.support.ddp_of_pytorch import WITHOUT_AND_WITH


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()), nn.Linear(2, 1))


def test_a_newcomer_has_the_modes_of_the_members_when_its_next_turn_begins() -> None:
    member, newcomer, other = net(), net(), net()
    of_member = Modes({"": member}, 1)
    assert of_member.state_dict()["count"] == 0
    member[1].eval()
    newcomer[2].eval()
    told = of_member.state_dict()
    found = Modes({"": newcomer}, 1)
    found.load_state_dict(told)
    assert found.state_dict() == told, "states are compared before the turn begins"
    newcomer.train()  # what stands before the loop
    found.begin()
    assert evaluating(newcomer) == evaluating(member) == ["1", "1.0", "1.1"]
    newcomer.train()
    found.begin()
    assert evaluating(newcomer) == [], "it is the script's matter from now on"
    of_other = Modes({"": other}, 2)
    of_other.load_state_dict(told)
    of_other.begin()
    assert evaluating(other) == evaluating(member), "another trainer whose script begins alike goes on, too"
    with_own = net()
    with_own[2].eval()
    of_own = Modes({"": with_own}, 3)
    of_own.load_state_dict(told)
    of_own.begin()
    assert evaluating(with_own) == ["2"], "one whose script begins otherwise has its own way"


def test_a_model_in_evaluation_mode_as_a_whole_says_nothing_of_its_layers() -> None:
    member, newcomer = net(), net()
    found, newcomers = Modes({"": member}, 1), Modes({"": newcomer}, 1)
    told = found.state_dict()
    assert told["layers"] == {"": []}
    assert Modes({"": member.eval()}, 1).state_dict()["layers"] == {}
    newcomer.eval()
    newcomers.load_state_dict(told)
    newcomers.begin()
    assert not newcomer.training and not newcomer[0].training


@pytest.mark.parametrize("ddp", WITHOUT_AND_WITH)
def test_a_run_has_them_in_its_state(ddp: bool) -> None:
    model = net()
    options = {"batch_size": 4, "epochs": 1, "ddp": ddp}
    data = TensorDataset(torch.ones(8, 1))
    run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), data, **options)
    model[1].eval()
    part = run._parts.state.parts["layers in evaluation mode"]
    assert part.state_dict()["count"] == 3
    part.load_state_dict({**part.state_dict(), "layers": {"": ["0"]}, "count": 1})
    for (x,) in run:
        assert evaluating(model) == ["0"]
        run.backward(run.model(x).square().mean())
        run.step()
