"""A node without samples in a step does not run the loop's body: it takes over what that has set."""

from __future__ import annotations

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.train.update import follow
from tests.support.two_ranks import on_two_ranks


def test_numbers_of_all_groups_are_taken_over_exactly() -> None:
    def groups(group: Group) -> list[dict[str, object]]:
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.Adam([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.5}], lr=0.1)
        if group.rank == 1:
            for entries in optimizer.param_groups:
                entries |= {"lr": 1.0 / 3.0, "weight_decay": 1e-17}
        follow(group, optimizer, 1)
        follow(group, torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]), 0)
        return [
            {name: value for name, value in e.items() if name != "params"} for e in optimizer.param_groups
        ]

    first, second = on_two_ranks(groups)
    assert first == second
    assert first[0]["lr"] == first[1]["lr"] == 1.0 / 3.0 and first[0]["weight_decay"] == 1e-17
    assert first[0]["betas"] == (0.9, 0.999) and first[0]["amsgrad"] is False
