"""A communicator that hangs when a peer is lost, as NCCL's does: it is aborted, never waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.members.membership import Published, is_left_behind
from bftrainer.elastic.members.nccl import AbortableGroup, accelerate
from bftrainer.elastic.members.rendezvous import Rendezvous
from bftrainer.elastic.process import warnings
from bftrainer.elastic.train.overlapped import Overlapped
from tests.support.ddp_of_pytorch import needs_ddp
from tests.support.two_ranks import on_two_ranks


class Work:
    """Never completes until it is aborted."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def is_completed(self) -> bool:
        return self.over.is_set()

    def wait(self) -> bool:
        return True  # as NCCL's: puts the stream in order, and says nothing of success


class Hanging:
    """Stands in for NCCL: reports no error by itself."""

    def __init__(self) -> None:
        self.begun: list[Work] = []
        self.aborted = 0

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Work:
        self.begun.append(Work())
        return self.begun[-1]

    def abort(self) -> None:
        self.aborted += 1
        for work in self.begun:
            work.over.set()


class Control:
    """Stands in for Gloo."""


def group(hanging: Hanging) -> AbortableGroup:
    return AbortableGroup(3, 0, 2, Control(), lambda: None, hanging, torch.device("meta"))


def test_a_hanging_collective_ends_when_a_loss_is_told() -> None:
    hanging = Hanging()
    found = group(hanging)
    pending = found.begin_all_reduce(torch.empty(3, device="meta"))
    outcome: list[str] = []

    def wait() -> None:
        try:
            pending.wait()
        except GroupBroken as error:
            outcome.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    found.fail("node n2 is gone")
    waiter.join(30)
    assert outcome == ["node n2 is gone"]
    assert hanging.aborted == 1
    found.close()
    assert hanging.aborted == 1, "once"
    with pytest.raises(GroupBroken):
        found.begin_all_reduce(torch.empty(3, device="meta"))


def test_a_collective_that_completes_is_waited_for() -> None:
    hanging = Hanging()
    pending = group(hanging).begin_all_reduce(torch.empty(3, device="meta"))
    threading.Timer(0.01, hanging.begun[0].over.set).start()
    pending.wait()
    assert hanging.aborted == 0


@pytest.mark.parametrize(
    ("members", "leaving", "expected"),
    [
        (("a", "b", "c"), (), False),  # one joins
        (("a",), ("b",), False),  # one leaves in good order
        (("a", "c"), ("b",), False),
        ((), ("a", "b"), False),
        (("a",), (), True),  # one was lost
        (("a", "c"), (), True),
        (("a", "b"), (), True),  # the same once more: the group is broken for one member
    ],
)
def test_when_a_group_is_given_up(members: tuple[str, ...], leaving: tuple[str, ...], expected: bool) -> None:
    assert is_left_behind(("a", "b"), Published(4, members, leaving)) is expected


class Refusing:
    """ProcessGroupNCCL where two ranks have the same GPU; `refused` are those that notice it."""

    refused: tuple[int, ...] = ()

    class Options:
        """Of a ProcessGroupNCCL."""

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        self.rank = rank
        store.set("id", "7") if rank == 0 else store.get("id")

    def eager_connect_single_device(self, device: torch.device) -> None:
        if self.rank in self.refused:
            raise dist.DistBackendError(
                "NCCL error in: b.hpp:268\nDuplicate GPU detected : rank 0 and rank 1"
            )


@pytest.mark.parametrize("refused", [(0, 1), (0,), (1,), ()])
def test_members_that_nccl_does_not_connect_train_on_without_it(
    refused: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refusing, "refused", refused)
    monkeypatch.setattr(warnings, "_last", [])
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Refusing, raising=False)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    stores: list[Rendezvous] = []
    stores += [Rendezvous(lambda key, value, to=to: stores[to].arrive(key, value)) for to in (1, 0)]
    found: dict[int, Group] = {}

    def rank(group: Group) -> None:
        found[group.rank] = accelerate(group, stores[group.rank], torch.device("cuda"), "localhost")
        total = torch.ones(1)
        found[group.rank].all_reduce(total)
        assert total.item() == 2.0

    on_two_ranks(rank)
    assert [isinstance(found[k], AbortableGroup) for k in (0, 1)] == [not refused] * 2
    told = "".join(warnings.last())
    assert ("Duplicate GPU detected : rank 0 and rank 1" in told) is bool(refused)


@needs_ddp
def test_with_one_member_no_gradient_leaves_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "device", torch.device("meta"))
    model = torch.nn.Linear(3, 1, bias=False)
    own = Overlapped(model, {})
    own.begin(Group(1, 0, 1), 1.0)
    with own.micro_batch(last=True):
        own.model(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    own.finish("")
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[1.0, 2.0, 3.0]]
