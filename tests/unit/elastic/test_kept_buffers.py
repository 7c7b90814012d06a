"""A forward pass whose step is lost leaves no trace in the buffers of the models."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.train import buffers as kept_buffers
from bftrainer.elastic.train.buffers import KeptBuffers
from bftrainer.elastic.train.trained import trained
from tests.support.two_ranks import on_two_ranks


class Counting(nn.Module):
    """Its forward pass counts, averages and replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 1), nn.BatchNorm1d(1)
        self.register_buffer("passes", torch.tensor(0))
        self.register_buffer("last", torch.zeros(1), persistent=False)
        self.register_buffer("mask", torch.ones(1).expand(4))
        self.passes: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one figure for each sample."""
        self.passes += 1
        self.last = x.mean(0)  # of another shape at first
        out: torch.Tensor = self.norm(self.linear(x))
        return out


def kept(model: nn.Module) -> KeptBuffers:
    return KeptBuffers(trained(model, torch.optim.SGD(model.parameters(), lr=0.1), None))


def buffers(model: nn.Module) -> dict[str, list[Any]]:
    return {name: buffer.tolist() for name, buffer in model.named_buffers()}


def test_what_a_pass_changes_alike_on_all_nodes_it_changes_where_it_did_not_run() -> None:
    def short(group: Group) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        model = deepcopy(same)
        keeper = kept(model)
        model[1].norm.running_mean.fill_(group.rank)
        keeper.begin(may_be_lost=True)
        if group.rank == 0:
            model(torch.ones(2, 2))
        before = buffers(model)
        keeper.follow(group, 0, takes=group.rank == 1)
        return before, buffers(model)

    same: Any = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), Counting())
    same[0].parametrizations.weight[0]._u.fill_(0.5**0.5)
    (first, as_before), (was, now) = on_two_ranks(short)
    assert as_before == first
    taken = {name for name, value in now.items() if value != was[name]}
    assert {"0.parametrizations.weight.0._u", "1.passes"} <= taken
    assert all(now[name] == first[name] for name in taken)
    assert now["1.norm.running_mean"] == was["1.norm.running_mean"] != first["1.norm.running_mean"]


def test_buffers_come_back_as_they_were_when_the_turn_began() -> None:
    model = Counting()
    keeper = kept(model)
    for _ in range(2):  # the second time into the copies of the first
        keeper.begin(may_be_lost=True)
        before = buffers(model)
        model(torch.randn(5, 2))
        assert buffers(model) != before
        keeper.restore()
        assert buffers(model) == before
        model(torch.randn(5, 2))


def test_modules_that_come_go_or_change_their_type_later_are_seen() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.LazyBatchNorm1d())
    model(torch.randn(3, 2))
    keeper = kept(model)
    keeper.begin(may_be_lost=True)
    inner = model[0]
    assert isinstance(inner, nn.Sequential)
    for change in (
        lambda: inner.append(nn.BatchNorm1d(2)),
        lambda: inner.__setitem__(1, nn.BatchNorm1d(2)),
        lambda: inner._modules.__setitem__("1", Stateful()),
        lambda: setattr(inner[1], "__class__", Counted),
        lambda: inner.__delitem__(1),
    ):
        change()
        keeper.begin(may_be_lost=True)
        before = buffers(model), states(model)
        model(torch.randn(3, 2))
        assert (buffers(model), states(model)) != before
        keeper.restore()
        assert (buffers(model), states(model)) == before


class Stateful(nn.Module):
    """It does nothing, and counts that from the moment on at which it becomes `Counted`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return it as it is."""
        self.count += 1
        return x


class Counted(Stateful):
    """Its count is state."""

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


def states(model: nn.Module) -> list[int]:
    return [module.count for module in model.modules() if isinstance(module, Counted)]


def test_alone_nothing_is_kept() -> None:
    model = Counting()
    keeper = kept(model)
    keeper.begin(may_be_lost=False)
    model(torch.randn(5, 2))
    keeper.restore()
    assert model.passes == 1


def test_buffers_that_are_too_large_are_told_of_when_a_step_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_buffers, "SMALL", 2**20)
    model = Counting()
    model.register_buffer("queue", torch.zeros(2**20))
    keeper = kept(model)
    keeper.begin(may_be_lost=True)
    model(torch.randn(5, 2))
    with pytest.warns(UserWarning, match=r"they have 4 MiB.*BFT-121"):
        keeper.restore()
    assert model.passes == 1


@pytest.mark.parametrize("lost_at", [None, 0, 2])
def test_a_run_counts_the_passes_of_its_steps_only(
    monkeypatch: pytest.MonkeyPatch, lost_at: int | None
) -> None:
    torch.manual_seed(0)
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = elastic.Run(model, optimizer, TensorDataset(torch.randn(16, 2)), batch_size=4, epochs=1)
    steps = iter(range(100))

    def finish(self: object, name: str) -> None:
        if next(steps) == lost_at:
            raise GroupBroken("a peer has gone")

    monkeypatch.setattr(type(run._parts.averaging), "finish", finish)
    monkeypatch.setattr(SingleProcess, "lost", lambda self, error: None)
    monkeypatch.setattr(run._parts.peers.group, "size", 2)
    turns = 0
    for (x,) in run:
        turns += 1
        run.backward(model(x).square().mean())
        run.step()
    assert turns == (4 if lost_at is None else 5)
    assert model.passes == 4 and model.norm.num_batches_tracked == 4


class Extra(nn.Module):
    """Its forward pass counts in what it keeps beside tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, list[int]] = {"passes": []}

    def get_extra_state(self) -> Any:
        """The counts themselves."""
        return self.counts

    def set_extra_state(self, state: Any) -> None:
        """Take them over."""
        self.counts = state


def test_what_layers_keep_beside_tensors_comes_back_as_well() -> None:
    model = nn.Sequential(nn.Linear(1, 1), Extra())
    extra = model[1]
    assert isinstance(extra, Extra)
    copies = kept(model)
    for may_be_lost, wanted in ((True, []), (False, [1])):
        copies.begin(may_be_lost=may_be_lost)
        extra.counts["passes"].append(1)
        copies.restore()
        assert extra.counts == {"passes": wanted}
