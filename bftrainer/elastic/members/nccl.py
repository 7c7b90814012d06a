"""NCCL for tensors on GPUs. Its collectives hang when a peer is lost, so they are aborted, not awaited.

Control stays with Gloo on the CPU, whose operations fail at once when a peer is lost. When one does, or when
the daemon publishes a membership that lacks a present member, the worker aborts the communicator
(`Group.fail`); that ends all operations which wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import FOREVER, Group, GroupBroken, Pending, attempt, late
from bftrainer.elastic.members.patience import Patience
from bftrainer.elastic.members.rendezvous import Rendezvous

POLL_S = 0.0001


class AbortableGroup(Group):
    """A group whose tensors on a device go through a second backend that can be aborted.

    `backend` is for the CPU's tensors, `accelerated` (ProcessGroupNCCL, or alike) for `device`'s.
    """

    def __init__(
        self,
        generation: int,
        rank: int,
        size: int,
        backend: Any,
        cut: Callable[[], None],
        accelerated: Any,
        device: torch.device,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(generation, rank, size, backend, cut, patience)
        self.accelerated = accelerated
        self.device = device

    def fail(self, reason: str) -> None:
        """As `Group.fail`; the first time, abort the communicator, too."""
        first = self.failure is None
        super().fail(reason)
        accelerated, self.accelerated = self.accelerated, None
        if first and accelerated is not None:
            accelerated.abort()

    def _start(self, tensor: torch.Tensor, operation: Callable[[Any], Any]) -> Pending:
        if tensor.device.type != self.device.type:
            return super()._start(tensor, operation)
        self.check()
        return _Polled(operation(self.accelerated), self)


class _Polled(Pending):
    """A collective that is polled, because to wait for it might never end."""

    def wait(self) -> None:
        began, group = time.monotonic(), self._group
        assert group is not None  # noqa: S101  see `AbortableGroup._start`
        while group.failure is None and not self._work.is_completed():
            time.sleep(POLL_S)
            if group.patience.is_over(began):
                group.fail(late(group.patience))
        if group.failure is not None:
            self._work = None
            raise GroupBroken(group.failure)
        work, self._work = self._work, None
        self._end(attempt(work, None))


def accelerate(group: Group, store: Rendezvous, device: torch.device) -> Group:
    """`group` with NCCL for the tensors on `device`; `group` itself where there is no NCCL.

    This connects the communicator, in the thread that forms the group, while the members train on in the old
    one.

    Raises:
        CalledOff: a newer generation has been published meanwhile.
    """
    if group.size == 1 or device.type != "cuda" or not dist.is_nccl_available():
        return group
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = FOREVER  # NCCL's own watch would end the process; ours is `_Polled`
    own = dist.PrefixStore("nccl", store)  # type: ignore[attr-defined]  # torch exports it conditionally
    made = dist.ProcessGroupNCCL(own, group.rank, group.size, options)
    made.eager_connect_single_device(device)
    return AbortableGroup(
        group.generation, group.rank, group.size, group.backend, group.cut, made, device, group.patience
    )
