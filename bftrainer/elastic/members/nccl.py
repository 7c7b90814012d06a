"""NCCL for tensors on GPUs. Its collectives hang when a peer is lost, so they are aborted, not awaited.

Control stays with Gloo on the CPU, whose operations fail at once when a peer is lost. When one does, or when
the daemon publishes a membership that lacks a present member, the worker aborts the communicator
(`Group.fail`); that ends all operations which wait for it.

ProcessGroupNCCL has a watchdog thread, for which its destructor waits. After an error the watchdog tells the
store, sleeps for a minute and takes the process down, as PyTorch sets it up by default. So it is set up to do
none of that (`UNATTENDED`), its store is one in C++ that needs no GIL, and a thread in the background drops
the last reference.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import FOREVER, Group, GroupBroken, Pending, attempt, late
from bftrainer.elastic.members.patience import Patience
from bftrainer.elastic.members.rendezvous import FORM_TIMEOUT_S, CalledOff, Rendezvous
from bftrainer.elastic.process import warnings
from bftrainer.messages.loop import NCCL_FAILED

POLL_S = 0.0001
UNATTENDED = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # the watchdog does not take the process down after an error
    "TORCH_NCCL_BLOCKING_WAIT": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",  # nobody polls the store for others' errors
    "TORCH_NCCL_PROPAGATE_ERROR": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",  # the watchdog sleeps four times as long after an error
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # no second thread that takes the process down if the watchdog waits
}
"""The environment in which a ProcessGroupNCCL is made: the members notice a loss themselves, and go on."""


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
        self._failing = threading.Lock()  # two threads may notice a loss at once

    def fail(self, reason: str) -> None:
        """See `Group.fail`; the first time, abort the communicator, too."""
        with self._failing:
            first = self.failure is None
            super().fail(reason)
        if first:
            with contextlib.suppress(RuntimeError):
                self.accelerated.abort()

    def _drop(self) -> None:
        super()._drop()
        self.accelerated = None  # its destructor waits for its threads

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


def accelerate(group: Group, store: Rendezvous, device: torch.device, address: str) -> Group:
    """`group` with NCCL for the tensors on `device`; `group` itself where there is no NCCL, or where NCCL
    cannot connect the members, of which the script is warned.

    This connects the communicator, in the thread that forms the group, while the members train on in the old
    one. `address` is where the others reach this node.

    Raises:
        CalledOff: a newer generation has been published meanwhile.
        GroupBroken: a member was lost.
    """
    if group.size == 1 or device.type != "cuda" or not dist.is_nccl_available():
        return group
    made = own = None  # the others may still need the store if this rank cannot connect
    reason = "another member says why"
    try:
        own = _native(store, group.rank, address)
        made = _connected(group, own, device)
    except CalledOff:
        raise
    except RuntimeError as error:
        reason = _cause(error)
    are_connected = torch.tensor([int(made is not None)])
    group.all_reduce(are_connected, dist.ReduceOp.MIN)
    del own
    if not are_connected:
        warnings.note_warning(NCCL_FAILED.say(reason=reason))
        return group
    return AbortableGroup(
        group.generation, group.rank, group.size, group.backend, group.cut, made, device, group.patience
    )


def _connected(group: Group, store: Any, device: torch.device) -> Any:
    """A ProcessGroupNCCL whose members are connected."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = FOREVER  # NCCL's own watch would end the process; `_Polled` replaces it
    os.environ.update(UNATTENDED)
    made = dist.ProcessGroupNCCL(store, group.rank, group.size, options)
    made.eager_connect_single_device(device)
    return made


def _native(store: Rendezvous, rank: int, address: str) -> Any:
    """A store in C++ for the members of `store`: rank 0 serves it, and tells the others where."""
    host, port = (address, 0) if rank == 0 else json.loads(store.get("nccl"))
    serves = rank == 0
    limit = timedelta(seconds=FORM_TIMEOUT_S)
    # without libuv, which is made for thousands of clients and missing from Debian's PyTorch
    made: Any = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it conditionally
        host, port, is_master=serves, wait_for_workers=False, timeout=limit, use_libuv=False
    )
    if serves:
        store.set("nccl", json.dumps([address, made.port]))
    return made


def _cause(error: RuntimeError) -> str:
    """The last line of what NCCL says: the lines before tell where in PyTorch's sources it was noticed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
