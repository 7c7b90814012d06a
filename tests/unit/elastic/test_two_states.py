"""A state reaches another rank whole: by a broadcast, and in chunks while both train on."""

from __future__ import annotations

import pytest
import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state import chain
from bftrainer.elastic.state import training_state as states
from bftrainer.elastic.state.chain import Passage
from bftrainer.elastic.state.handover import HandOver
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState
from tests.support.stage_parts import Kept
from tests.support.two_ranks import on_two_ranks


def made(rank: int) -> TrainingState:
    """A state with frozen parameters and buffers; rank 0's has been trained, the other's not."""
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(40, 50), torch.nn.BatchNorm1d(50), torch.nn.Linear(50, 3))
    model[2].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "kept": Kept()}
    state = TrainingState(parts)
    if rank == 0:
        for _ in range(3):
            step(state, torch.Generator().manual_seed(7))
        with torch.no_grad():
            model[1].running_mean.fill_(3.0)
        state.position = Position(step=3, samples=24, epoch=1, cursor=4)
    return state


def step(state: TrainingState, generator: torch.Generator) -> None:
    """The same averaged gradient on all ranks, whatever their parameters are."""
    for p in state.parameters():
        if p.requires_grad:
            p.grad = torch.randn(p.shape, generator=generator)
    state._optimizer.step()
    state._parts["scheduler"].step()  # type: ignore[attr-defined]
    state.position = Position(step=state.position.step + 1, samples=24, epoch=1, cursor=4)


def assert_same(one: dict[str, object], other: dict[str, object]) -> None:
    assert one["position"] == other["position"]
    torch.testing.assert_close(one["parts"], other["parts"], rtol=0, atol=0)


def test_a_broadcast_brings_everything() -> None:
    def handed_over(group: Group) -> dict[str, object]:
        state = made(group.rank)
        state.transfer(group, 0, receive=group.rank == 1)
        return state.snapshot()

    one, other = on_two_ranks(handed_over)
    assert one["position"] == {"step": 3, "samples": 24, "epoch": 1, "cursor": 4, "gained": 0.0}
    assert_same(one, other)


def streamed(group: Group, wrong_at: int | None = None) -> tuple[dict[str, object], list[bool], int]:
    """The state after steps during which rank 1 received it; which of these it shared; its bytes."""
    state = made(group.rank)
    hand_over = HandOver(state, streams=True, resume=lambda: False)
    hand_over.has_state = group.rank == 0
    hand_over.enter(group)
    generator = torch.Generator().manual_seed(1)
    shared, received = [], 0
    for number in range(40):
        caught_up = hand_over.advance(group)
        received += caught_up.bytes if caught_up else 0
        shared.append(group.rank in hand_over.working)
        hand_over.settle()
        if number == wrong_at and group.rank == 0:  # what no shadow can know of
            with torch.no_grad():
                state.parameters()[0].add_(1.0)
        step(state, generator)
        if group.rank in hand_over.working:  # the body of the script's loop, which does not run on a shadow
            state.parts["kept"].steps += 1  # type: ignore[attr-defined]
    hand_over.close()
    return state.snapshot(), shared, received


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that a state takes a dozen steps, in a few messages each."""
    monkeypatch.setattr(states, "STREAM_FROM", 1)
    monkeypatch.setattr(Passage, "open", Passage.end)  # all chunks end at once
    monkeypatch.setattr(chain, "MESSAGE", 1000)
    monkeypatch.setattr(chain, "GUESS", 2000)


def test_a_stream_brings_everything_while_both_take_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_broadcast(*_: object, **__: object) -> None:
        raise AssertionError("the state has been broadcast after all")

    monkeypatch.setattr(TrainingState, "transfer", no_broadcast)
    (one, _, _), (other, shared, received) = on_two_ranks(streamed)
    assert_same(one, other)
    assert shared == sorted(shared), "it shares the samples from some step on"
    assert 5 < shared.index(True) < 30
    assert one["parts"]["kept"] == {"steps": 40}  # type: ignore[index]
    assert received > 3 * 4 * 2100, "parameters, and two tensors of the optimiser"


def test_large_parts_come_when_a_stream_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "LARGE", 1)
    state = made(0)
    assert state.small(begins=True)["parts"].keys() == {"model", "optimizer", "scheduler", "kept"}
    monkeypatch.setattr(states, "LARGE", 0)
    assert state.small(begins=True)["parts"].keys() == {"model", "optimizer", "scheduler"}
    assert state.small()["parts"].keys() == {"model", "optimizer", "scheduler", "kept"}
    (one, _, _), (other, _, _) = on_two_ranks(streamed)
    assert_same(one, other)


def test_a_state_that_differs_when_it_has_arrived_is_broadcast() -> None:
    def disturbed(group: Group) -> tuple[dict[str, object], list[bool], int]:
        return streamed(group, wrong_at=4)

    (one, _, _), (other, shared, _) = on_two_ranks(disturbed)
    assert shared[-1]
    assert_same(one, other)
