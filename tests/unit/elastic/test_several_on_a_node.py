"""What a script that attaches knows of the other workers of its node; the daemon hears of nodes."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from bftrainer.elastic.attach.job import Job, _nodes
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.process.identity import Identity


def orders(**more: Any) -> Orders:
    base = {"fd": -1, "trainer": 1, "node": "n", "generation": 1, "address": "127.0.0.1", "samples": None}
    return Orders(**{**base, "checkpoint_dir": "", "checkpoint_every_s": 1.0, **more})


def identity(given: Orders | None) -> Identity:
    found = Identity()
    found._orders = given
    return found


@pytest.mark.parametrize(
    ("ranks", "each", "world", "groups", "nodes"),
    [(8, 4, 8, "2", 2), (6, 4, 6, "2", 2), (3, 1, 3, "3", 3), (4, 4, 8, "2", 1), (2, 1, 2, None, 2)],
)
def test_the_daemon_hears_of_nodes(
    monkeypatch: pytest.MonkeyPatch, ranks: int, each: int, world: int, groups: str | None, nodes: int
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    monkeypatch.delenv("GROUP_WORLD_SIZE", raising=False)
    if groups is not None:
        monkeypatch.setenv("GROUP_WORLD_SIZE", groups)
    assert _nodes(ranks, each) == nodes


def test_sizes_are_numbers_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Job.__module__], "Channel", _Nobody)
    job = Job(orders(n_min=1, n_max=3, local_size=4))
    assert (job.nodes, list(job.sizes)) == ((1, 3), [4, 8, 12])
    assert list(Job(orders(n_min=2, n_max=4, multiple_of=2, local_size=2)).sizes) == [4, 8]
    assert Job(orders(n_min=1, n_max=8, sizes=[1, 8], local_size=2)).sizes == (2, 16)


def test_a_script_knows_its_place_on_its_node() -> None:
    found = identity(orders(local_rank=2, local_size=4))
    assert (found.local_rank, found.local_size) == (2, 4)
    by_hand = identity(None)
    assert (by_hand.local_rank, by_hand.local_size) == (0, 1)


@pytest.mark.parametrize(("cuda", "xpu", "expected"), [(1, 0, "cuda:3"), (0, 1, "xpu:3"), (0, 0, "cpu")])
def test_the_device_is_the_workers_own(
    monkeypatch: pytest.MonkeyPatch, cuda: int, xpu: int, expected: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(cuda))
    monkeypatch.setattr("torch.xpu.is_available", lambda: bool(xpu))
    assert str(identity(orders(device=3)).device) == expected
    if cuda:
        assert str(identity(None).device) == "cuda:0"


def test_the_ranks_of_one_node_and_of_the_most() -> None:
    assert orders(n_max=3, local_size=4).ranks == (4, 12)
    assert orders().ranks == (1, 1)


class _Nobody:
    """A connection to no agent."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def start(self) -> None: ...

    def send(self, *_: object, **__: object) -> None: ...
