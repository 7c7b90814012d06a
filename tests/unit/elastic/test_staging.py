"""The order of copies of a state on a GPU among the training's kernels, with streams that only take notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.staging import Staging
from bftrainer.elastic.state.training_state import TrainingState
from tests.support.two_ranks import on_two_ranks, streamed

DEVICE = torch.device("cuda:0")


class Noting:
    """Stands in for a stream of CUDA."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said, self.device = name, said, DEVICE

    def wait_stream(self, other: Noting) -> None:
        self.said.append(f"{self.name} waits for {other.name}")

    def synchronize(self) -> None:
        self.said.append(f"{self.name} is done")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    notes: list[str] = []

    @contextlib.contextmanager
    def within(stream: Noting) -> Iterator[None]:
        notes.append(f"on {stream.name}")
        yield

    empty = torch.empty

    def pinned(*sizes: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        notes.extend(["pinned"] * pin_memory)
        return empty(*sizes, **more)

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Noting("side", notes))
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Noting("training", notes))
    monkeypatch.setattr(torch, "empty", pinned)
    return notes


def test_copies_come_between_two_updates(said: list[str]) -> None:
    staging = Staging([SimpleNamespace(device=DEVICE, is_cuda=True)] * 2, 100)  # type: ignore[list-item]
    staging.follow()
    memory = staging.memory(10)
    with staging.copies():
        said.append("copied")
    assert said == ["side waits for training", "pinned", "on side", "copied", "side is done"]
    staging.give_back(memory)
    assert staging.memory(100).data_ptr() == memory.data_ptr()
    assert said.count("pinned") == 1, "it is kept"


def test_a_chunk_follows_the_last_update_and_is_there_before_the_next(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bftrainer.elastic.state.chain.Staging",
        lambda tensors, size: Staging([SimpleNamespace(device=DEVICE, is_cuda=True)], size),  # type: ignore[list-item]
    )

    def rank(group: Group) -> float:
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.full((2_000,), float(group.rank)))])
        state = TrainingState({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
        streamed(group, state)
        return float(model[0].detach().sum())

    assert on_two_ranks(rank) == (0.0, 0.0)
    orders = [line for line in said if "waits for" in line]
    assert set(orders) == {"side waits for training"}
    assert said.count("on side") == said.count("side is done") > 0
