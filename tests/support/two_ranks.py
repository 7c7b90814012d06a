"""Two ranks of one process group, each in a thread of the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.stream import Roll, Stream
from bftrainer.elastic.state.training_state import TrainingState

T = TypeVar("T")


def on_two_ranks(work: Callable[[Group], T], generation: int = 1) -> tuple[T, T]:
    """What `work` returns on rank 0 and on rank 1, which run it at the same time.

    Raises:
        whatever `work` raises on a rank; the other gets `GroupBroken` then.
    """
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch exports it conditionally

    def rank(number: int) -> T:
        made = [dist.ProcessGroupGloo(store, number, 2, timedelta(seconds=60))]
        group = Group(generation, number, 2, made.pop())  # which alone keeps it
        try:
            return work(group)
        finally:
            group.close()

    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.submit(rank, 0), pool.submit(rank, 1)
            return first.result(90), second.result(90)
    finally:  # PyTorch keeps one for the process: of two threads, one's stays for what is compiled later
        DistributedDataParallel._active_ddp_module = None


def streamed(group: Group, state: TrainingState) -> None:
    """Stream the state of rank 0 to rank 1, to its end."""
    stream = Stream(group, state, Roll(0, (0,), (1,), 0))
    stream.begin()
    while stream.outcome() == 0:
        stream.advance()
        stream.settle()
    stream.close()
