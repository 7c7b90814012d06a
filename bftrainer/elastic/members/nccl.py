"""NCCL for what is on GPUs. Its collectives hang when a peer is lost, so they are aborted, not awaited.

Control stays with Gloo: what is exchanged from the CPU tells of a loss at once. When the daemon publishes
a membership that a member of the present one has vanished from, or a Gloo exchange fails, the
communicator is aborted (`Group.fail`), which ends whatever waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import OPERATION_TIMEOUT_S, Group, GroupBroken, Pending, Rendezvous

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
    ) -> None:
        super().__init__(generation, rank, size, backend, cut)
        self.accelerated = accelerated
        self.device = device

    def fail(self, reason: str) -> None:
        """See `Group.fail`; the communicator is aborted, once."""
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
    """A collective that is asked whether it is over, since waiting for it might never end."""

    def __init__(self, work: Any, group: AbortableGroup) -> None:
        super().__init__(work, group.fail)
        self._group = group

    def wait(self) -> None:
        while self._group.failure is None and not self._work.is_completed():
            time.sleep(POLL_S)
        if self._group.failure is not None:
            self._work = None
            raise GroupBroken(self._group.failure)
        super().wait()


def accelerate(group: Group, store: Rendezvous, device: torch.device) -> Group:
    """`group` with NCCL for the tensors on `device`; the same group where there is no NCCL.

    The communicator is connected here, in the thread that forms the group, while the old one trains on.
    """
    if group.size == 1 or device.type != "cuda" or not dist.is_nccl_available():
        return group
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=OPERATION_TIMEOUT_S)
    own = dist.PrefixStore("nccl", store)  # type: ignore[attr-defined]  # torch exports it conditionally
    made = dist.ProcessGroupNCCL(own, group.rank, group.size, options)
    made.eager_connect_single_device(device)
    return AbortableGroup(group.generation, group.rank, group.size, group.backend, group.cut, made, device)
