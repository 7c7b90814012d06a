"""A group that is closed or has failed holds nobody up, even where an operation under way never ends.

Gloo's operations do not always end when their connections are cut. Here they are not cut at all.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import torch

from bftrainer.elastic.members.group import Group, GroupBroken
from tests.support.two_ranks import on_two_ranks

SOON_S = 20.0


def with_a_silent_peer(work: Callable[[Group], None]) -> None:
    """Run `work` on rank 0; rank 1 takes part in nothing until that is over."""
    over = threading.Event()
    ended: list[None] = []
    in_time: list[bool] = []

    def rank(group: Group) -> None:
        if group.rank == 1:
            over.wait(2 * SOON_S)
            return
        worker = threading.Thread(target=lambda: ended.append(work(group)), daemon=True)
        worker.start()
        worker.join(SOON_S)
        in_time.append(bool(ended))
        over.set()

    on_two_ranks(rank)
    assert in_time == [True], "it waits for the peer"


def test_a_group_is_closed_at_once_whatever_is_under_way() -> None:
    def close(group: Group) -> None:
        group.begin_all_reduce(torch.zeros(6))
        group.close()

    with_a_silent_peer(close)


@pytest.mark.parametrize(
    "operation",
    [
        lambda group: group.all_reduce(torch.zeros(6)),
        lambda group: group.broadcast(torch.zeros(6), source=1),
        lambda group: group.receive(torch.zeros(6), 1),
        lambda group: group.receive(torch.zeros(6), 1, within_s=1000.0),
    ],
)
def test_a_rank_that_waits_in_a_failed_group_learns_of_it(operation: Callable[[Group], None]) -> None:
    def wait(group: Group) -> None:
        threading.Timer(0.2, lambda: group.fail("another generation goes on")).start()
        with pytest.raises(GroupBroken, match="another generation"):
            operation(group)

    with_a_silent_peer(wait)


def test_a_script_that_ends_inside_its_loop_ends() -> None:
    """The interpreter closes the loop when no thread can start any more."""
    script = """
import torch
from bftrainer import elastic
model = torch.nn.Linear(1, 1)
data = torch.utils.data.TensorDataset(torch.zeros(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
run = elastic.Run(model, optimizer, torch.utils.data.DataLoader(data), epochs=1)
batches = iter(run)
next(batches)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)


def test_a_process_does_not_end_amid_a_call_in_the_background() -> None:
    """C++ would abort it: a thread that comes back from there finds no interpreter any more."""
    script = """
import threading, time, torch
from bftrainer.elastic.process.background import calling
torch.set_num_threads(1)
a = torch.randn(700, 700)
begun = threading.Event()
def work():
    while True:
        with calling():
            begun.set()
            a @ a
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=240)
