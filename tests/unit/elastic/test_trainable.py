"""Layers that a script freezes and unfreezes: nodes average the same gradients, and newcomers follow."""

from __future__ import annotations

import pytest
import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.training_state import TrainingState
from bftrainer.elastic.train import average
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import ONE, Trained
from tests.support.two_ranks import on_two_ranks


def net(*, frozen: bool = True) -> torch.nn.Sequential:
    made = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    for p in made.parameters():
        torch.nn.init.constant_(p, 0.5)
    made[0].requires_grad_(not frozen)
    return made


def flags(model: torch.nn.Module) -> list[bool]:
    return [p.requires_grad for p in model.parameters()]


def test_a_newcomer_freezes_what_the_members_have_frozen() -> None:
    member, newcomer, other = net(frozen=False), net(), net()
    of_member = Trainable({"": member}, 1)
    member[0].bias.requires_grad_(False)
    member[1].requires_grad_(False)
    told = of_member.state_dict()
    of_newcomer = Trainable({"": newcomer}, 1)
    of_newcomer.load_state_dict(told)
    assert flags(newcomer) == flags(member) == [True, False, False, False]
    assert len(of_newcomer.averaged()) == len(of_member.averaged()) == 4, "they may be unfrozen in a step"
    assert of_newcomer.state_dict() == told
    Trainable({"": other}, 2).load_state_dict(told)
    assert flags(other) == [False, False, True, True], "a trainer that goes on from another has its own way"


def test_a_resumed_trainer_goes_on_with_what_was_frozen_where_its_script_begins_alike() -> None:
    first, resumed = net(), net()
    of_first = Trainable({"": first}, 1)
    first[0].requires_grad_(True)
    first[1].bias.requires_grad_(False)
    of_first.renew()
    of_resumed = Trainable({"": resumed}, 2)
    of_resumed.load_state_dict(of_first.state_dict())
    assert flags(resumed) == flags(first) == [True, True, True, False]
    again = net()
    Trainable({"": again}, 3).load_state_dict(of_resumed.state_dict())
    assert flags(again) == flags(first), "also from a trainer that was resumed itself"


@pytest.mark.parametrize("layers", [0, 1])
def test_layers_and_groups_that_came_later_are_told_where_they_are_missing(layers: int) -> None:
    def state(extra: int) -> TrainingState:
        model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(2 + extra * layers)))
        sgd = torch.optim.SGD(model[0].parameters(), lr=0.1)
        if extra:
            sgd.add_param_group({"params": list(model[1].parameters())})
        return TrainingState({"model": model, "optimizer": sgd})

    with pytest.raises(ValueError, match=r"does not fit.*before elastic\.Run"):
        state(0).restore(state(1).snapshot())


def test_what_is_unfrozen_is_averaged_once_all_ranks_have_unfrozen_it() -> None:
    def gradients(group: Group, *, all_have: bool) -> list[float | None]:
        model = net()
        trainable = Trainable({"": model}, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        ways = average.chosen(Trained({ONE: model}, {ONE: sgd}, {}), False, True, trainable)
        if all_have or group.rank == 0:
            model[0].requires_grad_(True)
        if all_have:
            trainable.renew()
        ways.begin(group, 0.5)
        model(torch.tensor([[2.0 * group.rank]])).sum().backward()
        ways.finish(ONE)
        return [None if p.grad is None else float(p.grad) for p in model.parameters()]

    one, other = on_two_ranks(lambda group: gradients(group, all_have=True))
    assert one == other == [0.5, 0.5, 1.0, 1.0]
    one, other = on_two_ranks(lambda group: gradients(group, all_have=False))
    assert one == other == [None, None, 1.0, 1.0], "while a state is handed over, only members run the script"
