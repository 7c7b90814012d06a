"""What the loop's body sets in an optimiser, such as a learning rate, on nodes where it does not run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bftrainer.elastic.members.group import Group


def follow(group: Group, optimizer: torch.optim.Optimizer, source: int) -> None:
    """Take over the numbers of an optimiser's parameter groups from rank `source`, on all ranks.

    Raises:
        GroupBroken: a member was lost meanwhile.
    """
    places = list(_places(optimizer))
    numbers = torch.tensor([value for *_, value in places], dtype=torch.float64, device=group.device)
    if not len(numbers):
        return
    group.broadcast(numbers, source)
    for (entries, name, mine), theirs in zip(places, numbers.tolist(), strict=True):
        if theirs != mine:
            entries[name] = int(theirs) if type(mine) is int and theirs.is_integer() else theirs


def _places(optimizer: torch.optim.Optimizer) -> Iterator[tuple[dict[str, float], str, float]]:
    """The numbers, each with where it stands. Pairs, such as betas, are set by schedulers alone."""
    for entries in optimizer.param_groups:
        for name in sorted(entries):
            if type(entries[name]) in (int, float):
                yield entries, name, entries[name]
