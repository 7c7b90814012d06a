"""The default group of `torch.distributed`: which backend has the tensors of which device, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from bftrainer.elastic.members import default_group
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.members.nccl import AbortableGroup


def gloo() -> Any:
    return dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=1))


@pytest.fixture
def group() -> Iterator[AbortableGroup]:
    made = AbortableGroup(3, 0, 1, gloo(), lambda: None, gloo(), torch.device("cuda"))
    default_group.install(made)
    yield made
    default_group.remove()


def test_nccl_has_the_tensors_on_gpus(group: AbortableGroup) -> None:
    world = dist.group.WORLD
    assert world._get_backend(torch.device("cuda")) is group.accelerated
    assert world._get_backend(torch.device("cpu")) is group.backend
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [1.0, 1.0]


def test_on_one_node_tensors_on_a_gpu_have_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    default_group.install(Group(1, 0, 1))
    assert dist.group.WORLD._get_backend(torch.device("cuda")) is not None
    default_group.remove()


def test_its_removal_shuts_nothing_down(group: AbortableGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would wait for operations in NCCL that a lost peer never ends."""
    shut: list[Any] = []
    for name in ("shutdown", "_shutdown"):
        for owner in (dist.ProcessGroup, dist.Backend if hasattr(dist, "Backend") else None):
            if owner is not None and hasattr(owner, name):
                monkeypatch.setattr(owner, name, lambda *_: shut.append(1))
    default_group.remove()
    assert not shut
    assert not dist.is_initialized()
