"""A communicator that hangs when a peer is lost, as NCCL's does: it is aborted, never waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from bftrainer.elastic.members.group import GroupBroken
from bftrainer.elastic.members.membership import Published, is_left_behind
from bftrainer.elastic.members.nccl import AbortableGroup


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
