"""Process groups that come and go with generations, and the rendezvous that forms them.

The rendezvous store lives in the members themselves: what one sets is pushed to the others through
agents and daemon, and waiting for a key is a local wait that can be called off at once, for
instance because the peer that should have set it is dead and a newer generation is on its way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bftrainer.elastic.members.sockets import Address, cut, listening

FORM_TIMEOUT_S = 10.0
OPERATION_TIMEOUT_S = 120.0


class GroupBroken(RuntimeError):  # noqa: N818  a state of the group
    """A peer is gone: nothing more can be done in this group."""


def lost_peer(error: RuntimeError) -> bool:
    """Whether an error of `torch.distributed` says that a peer is gone, and not that the call was wrong."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


class CalledOff(RuntimeError):  # noqa: N818  an order
    """The rendezvous was called off."""


class Rendezvous(dist.Store):  # type: ignore[name-defined, misc]  # torch exports it conditionally
    """A key-value store whose entries are pushed to all members of one generation."""

    def __init__(self, push: Callable[[str, bytes], None]) -> None:
        super().__init__()
        self._push = push
        self._entries: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._off = False

    def arrive(self, key: str, value: bytes) -> None:
        """Another member's entry."""
        with self._changed:
            self._entries[key] = value
            self._changed.notify_all()

    def call_off(self) -> None:
        """Make everyone who waits, or ever will, raise `CalledOff`."""
        with self._changed:
            self._off = True
            self._changed.notify_all()

    def entries(self) -> dict[str, bytes]:
        """All that has been said so far."""
        with self._changed:
            return dict(self._entries)

    # what ProcessGroupGloo calls

    def set(self, key: str, value: Any) -> None:
        entry = value.encode() if isinstance(value, str) else bytes(value)
        self.arrive(key, entry)
        self._push(key, entry)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._entries[key]

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            return all(key in self._entries for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        limit = timeout.total_seconds() if timeout else FORM_TIMEOUT_S
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._off or all(key in self._entries for key in keys), timeout=limit
            )
            if self._off or not there:
                raise CalledOff(f"waited for {keys}")


class Group:
    """The members of one generation. SingleProcess, it does nothing and never fails.

    What has failed once fails for good: after the first error every operation raises `GroupBroken`.
    """

    device = torch.device("cpu")
    """Where tensors must be to be exchanged."""

    def __init__(
        self,
        generation: int,
        rank: int,
        size: int,
        backend: Any = None,
        cut: Callable[[], None] = lambda: None,
    ) -> None:
        self.generation = generation
        self.rank = rank
        self.size = size
        self.backend = backend
        self.cut = cut
        self.failure: str | None = None

    def begin_all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> Pending:
        """Start reducing `tensor` in place; it may not be touched until the result is waited for."""
        if self.size == 1:
            return Pending(None)
        options = dist.AllreduceOptions()
        options.reduceOp = op
        return self._start(tensor, lambda backend: backend.allreduce([tensor], options))

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        self.begin_all_reduce(tensor, op).wait()

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Copy `tensor` from rank `source` to all others, in place."""
        if self.size == 1:
            return
        options = dist.BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        self._start(tensor, lambda backend: backend.broadcast([tensor], options)).wait()

    def send(self, tensor: torch.Tensor, rank: int) -> None:
        """Send `tensor` to `rank`, which receives it; returns when the memory may be used again."""
        self._start(tensor, lambda backend: backend.send([tensor], rank, 0)).wait()

    def receive(self, tensor: torch.Tensor, rank: int) -> None:
        """Fill `tensor` with what `rank` sends."""
        self._start(tensor, lambda backend: backend.recv([tensor], rank, 0)).wait()

    def close(self) -> None:
        """Drop the connections; peers that still use the group get an error at once."""
        self.fail("closed")
        self.backend = None

    def retire(self) -> None:
        """Close in the background, which takes 10 ms: nobody waits for this rank to let go."""
        threading.Thread(target=self.close, name="bftrainer-close", daemon=True).start()

    def fail(self, reason: str) -> None:
        """A peer is gone. Whatever is under way ends at once, on all ranks: what waits for a rank that
        has given up already would wait for ever."""
        if self.failure is None:
            self.failure = reason
            self.cut()

    def check(self) -> None:
        """Raise `GroupBroken` if any operation has failed."""
        if self.failure is not None:
            raise GroupBroken(self.failure)

    def _start(self, tensor: torch.Tensor, operation: Callable[[Any], Any]) -> Pending:
        self.check()
        try:
            return Pending(operation(self.backend), self.fail)
        except RuntimeError as error:
            self.fail(str(error))
        raise GroupBroken(self.failure)


class Pending:
    """A collective under way.

    A work object keeps its group's connections open. When it fails, nothing may hold on to it, the
    exception's traceback included: a peer that waits for us would not learn that we have gone.
    """

    def __init__(self, work: Any, failed: Callable[[str], None] = lambda reason: None) -> None:
        self._work = work
        self._failed = failed

    def wait(self) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        reason = None
        try:
            work.wait()
        except RuntimeError as error:
            reason = str(error)
        del work
        if reason is not None:
            self._failed(reason)
            raise GroupBroken(reason)


def form(store: Rendezvous, generation: int, rank: int, size: int, address: str) -> Group:
    """Connect with all other members. Blocks until they have come, or the rendezvous is called off.

    Raises:
        GroupBroken, CalledOff: a member died or did not come; the next generation will be without it.
    """
    if size == 1:
        return Group(generation, rank, size)
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stub
    options._timeout = timedelta(seconds=FORM_TIMEOUT_S)
    device, own = listening(lambda: dist.ProcessGroupGloo.create_device(hostname=address))
    options._devices = [device]
    store.set(f"listens/{rank}", json.dumps(sorted(own)))
    try:
        backend = dist.ProcessGroupGloo(store, rank, size, options)
        backend._set_default_timeout(timedelta(seconds=OPERATION_TIMEOUT_S))
    except CalledOff:
        raise
    except RuntimeError as error:
        raise GroupBroken(str(error)) from error
    return Group(generation, rank, size, backend, lambda: cut(own, _addresses(store)))


def _addresses(store: Rendezvous) -> set[Address]:
    """Where members listen, as far as they have said."""
    said = [json.loads(entry) for key, entry in store.entries().items() if key.startswith("listens/")]
    return {(host, port) for addresses in said for host, port in addresses}
