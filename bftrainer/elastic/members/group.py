"""Process groups that come and go with generations, and how one is formed."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

from bftrainer.elastic.members.patience import Patience
from bftrainer.elastic.members.rendezvous import FORM_TIMEOUT_S, CalledOff, Rendezvous
from bftrainer.elastic.members.sockets import Address, cut, listening
from bftrainer.elastic.process.background import calling, start

FOREVER = timedelta(days=7)
"""The time-out of operations whose waiting `Patience` bounds."""
LOOK = timedelta(seconds=0.25)
"""Time between a waiting member's checks whether it is late, or the group has failed."""

# A process that a member forks, such as a DataLoader's worker, has none of Gloo's threads. A collection of
# garbage there would destroy a group of before, which waits for them for ever, or aborts
os.register_at_fork(after_in_child=gc.freeze)


class GroupBroken(RuntimeError):  # noqa: N818  a state of the group
    """A peer is lost: no operation of this group can succeed any more."""


def lost_peer(error: RuntimeError) -> bool:
    """True if an error of `torch.distributed` means a lost peer, and not a wrong call."""
    return isinstance(error, dist.DistError) or "gloo/transport" in str(error)


class Group:
    """The process group of one generation. With one member, operations do nothing and never fail.

    A group fails for good: after the first error every operation raises `GroupBroken`.

    Args:
        backend: the ProcessGroupGloo; None with one member.
        cut: closes all connections of the group.
    """

    device = torch.device("cpu")
    """Device of tensors to exchange."""
    accelerated: Any = None
    """A second backend, for the tensors on `device`; see `AbortableGroup`."""

    def __init__(
        self,
        generation: int,
        rank: int,
        size: int,
        backend: Any = None,
        cut: Callable[[], None] = lambda: None,
        patience: Patience | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self.generation = generation
        self.rank = rank
        self.size = size
        self.backend = backend
        self.cut = cut
        self.failure: str | None = None

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` where it can be exchanged; with one member, as it is."""
        return tensor if self.size == 1 else tensor.to(self.device)

    def begin_all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> Pending:
        """Start to reduce `tensor` over all ranks, in place. Leave it alone until `Pending.wait` returns.

        Raises:
            GroupBroken: the group has failed.
        """
        if self.size == 1:
            return Pending(None)
        options = dist.AllreduceOptions()
        options.reduceOp = op
        options.timeout = FOREVER
        return self._start(tensor, lambda backend: backend.allreduce([tensor], options))

    def begin_total(self, tensor: torch.Tensor, only: int | None) -> Pending:
        """Start to replace `tensor` by its sum over all ranks; where one is the `only` rank with numbers, by
        these.

        Raises:
            GroupBroken: the group has failed.
        """
        return self.begin_all_reduce(tensor) if only is None else self.begin_broadcast(tensor, only)

    def all_reduce(self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        """Reduce `tensor` over all ranks, in place.

        Raises:
            GroupBroken: a member was lost.
        """
        self.begin_all_reduce(tensor, op).wait()

    def sum_up(self, tensor: torch.Tensor) -> None:
        """Replace `tensor`, on whatever device it is, by its sum over all ranks.

        Raises:
            GroupBroken: a member was lost.
        """
        moved = self.moved(tensor)
        self.all_reduce(moved)
        if moved is not tensor:
            tensor.copy_(moved)

    def all_to_all(
        self, received: torch.Tensor, sent: torch.Tensor, coming: Sequence[int], outgoing: Sequence[int]
    ) -> None:
        """Send the first `outgoing[0]` numbers of `sent` to rank 0, the next `outgoing[1]` to rank 1 and so
        on, and fill `received` with what arrives, `coming[i]` numbers from rank i. Both are vectors.

        Raises:
            GroupBroken: a member was lost.
        """
        if self.size == 1:
            received.copy_(sent)
            return
        options = dist.AllToAllOptions()
        options.timeout = FOREVER
        splits = list(coming), list(outgoing)
        self._start(sent, lambda backend: backend.alltoall_base(received, sent, *splits, options)).wait()

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Copy `tensor` from rank `source` to all others, in place.

        Raises:
            GroupBroken: a member was lost.
        """
        self.begin_broadcast(tensor, source).wait()

    def begin_broadcast(self, tensor: torch.Tensor, source: int) -> Pending:
        """Start to copy `tensor` from rank `source` to all others, in place. Leave it alone until
        `Pending.wait` returns.

        Raises:
            GroupBroken: the group has failed.
        """
        if self.size == 1:
            return Pending(None)
        options = dist.BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        options.timeout = FOREVER
        return self._start(tensor, lambda backend: backend.broadcast([tensor], options))

    def send(self, tensor: torch.Tensor, rank: int, within_s: float | None = None) -> None:
        """Send `tensor` to `rank`, which must call `receive`; returns when the memory may be used again.

        Raises:
            GroupBroken: a member was lost, or it took longer than `within_s`.
        """
        self.begin_send(tensor, rank).wait_once(within_s)

    def begin_send(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Start to send `tensor` to `rank`. Leave it alone until `Pending.wait_once` returns.

        Raises:
            GroupBroken: the group has failed.
        """
        return self._start(tensor, lambda backend: backend.send([tensor], rank, 0))

    def begin_receive(self, tensor: torch.Tensor, rank: int) -> Pending:
        """Start to fill `tensor` with what `rank` sends; it is there when `Pending.wait_once` returns.

        Raises:
            GroupBroken: the group has failed.
        """
        return self._start(tensor, lambda backend: backend.recv([tensor], rank, 0))

    def receive(self, tensor: torch.Tensor, rank: int, within_s: float | None = None) -> None:
        """Fill `tensor` with what `rank` sends.

        Raises:
            GroupBroken: a member was lost, or it took longer than `within_s`.
        """
        self.begin_receive(tensor, rank).wait_once(within_s)

    def close(self) -> None:
        """Close the connections. Peers that still use the group get an error at once.

        The rest is done in the background: Gloo first ends what is under way, and a send that a peer has not
        begun to receive when its connection is cut never ends.
        """
        self.fail("closed")
        self._in_background(self._drop)

    def retire(self) -> None:
        """Close in the background: it takes 10 ms, and no member waits for it."""
        self._in_background(self.close)

    def _in_background(self, what: Callable[[], None]) -> None:
        start(calling()(what), "bftrainer-close")

    def _drop(self) -> None:
        self.backend = None

    def fail(self, reason: str) -> None:
        """Mark the group as failed, and cut its connections.

        So operations under way end at once on all ranks. Without that, a rank that waits for one that has
        given up would wait for ever.
        """
        if self.failure is None:
            self.failure = reason
            self.cut()

    def check(self) -> None:
        """Check that no operation has failed.

        Raises:
            GroupBroken: one has.
        """
        if self.failure is not None:
            raise GroupBroken(self.failure)

    def _start(self, tensor: torch.Tensor, operation: Callable[[Any], Any]) -> Pending:
        self.check()
        try:
            return Pending(operation(self.backend), self)
        except RuntimeError as error:
            self.fail(str(error))
        raise GroupBroken(self.failure)


class Pending:
    """A collective under way.

    Torch's work object keeps its group's connections open. So after a failure nothing may keep it, not even
    the exception's traceback: else a peer that waits for this rank would not learn that it has left.
    """

    def __init__(self, work: Any, group: Group | None = None) -> None:
        self._work, self._group = work, group

    def wait(self) -> None:
        """Wait until it is over. Returns at once if it is over already.

        Raises:
            GroupBroken: a member was lost, or was silent for too long.
        """
        work, self._work = self._work, None
        if work is not None and self._group is not None:
            self._end(_outcome(work, self._group))

    def wait_once(self, within_s: float | None = None, waiter: Waiter | None = None) -> None:
        """Wait until an operation between two ranks is over. It bears no look at the clock meanwhile, so
        another thread waits: that of `waiter`, or one of its own.

        Raises:
            GroupBroken: a member was lost, or it took longer than `within_s`.
        """
        work, self._work = self._work, None
        if work is None or self._group is None:
            return None
        limit = FOREVER if within_s is None else timedelta(seconds=within_s)
        own = waiter or Waiter(attempt)
        ended = own.ended(work, limit)
        if waiter is None:
            own.close()
        del work
        while True:
            try:
                return self._end(ended.get(timeout=LOOK.total_seconds()))
            except Empty:
                self._group.check()

    def _end(self, reason: str | None) -> None:
        if reason is not None and self._group is not None:
            self._group.fail(reason)
            raise GroupBroken(reason)


def _outcome(work: Any, group: Group) -> str | None:
    """Wait for a collective; why it failed, or None."""
    began = time.monotonic()
    while attempt(work, LOOK) is not None:
        if work.is_completed():
            return attempt(work, LOOK)
        if group.failure is not None:  # its connections are cut, which does not end every operation
            return group.failure
        if group.patience.is_over(began):
            return late(group.patience)
    return None


def attempt(work: Any, timeout: timedelta | None) -> str | None:
    """Wait for an operation; why it failed or is not over, or None."""
    try:
        work.wait(timeout) if timeout else work.wait()
    except RuntimeError as error:
        return str(error)
    return None


def late(patience: Patience) -> str:
    """Message when a member has waited for too long."""
    return (
        f"a member has said nothing for {patience.timeout_s:g} s. If the script was busy there, such as with "
        "an evaluation, put that into `with run.pause():`, or use run.evaluate, or elastic.Run(timeout_s=...)"
    )


def form(
    store: Rendezvous, generation: int, rank: int, size: int, address: str, patience: Patience | None = None
) -> Group:
    """Connect with all other members. Blocks until they are connected, or the rendezvous is called off.

    `address` is where the others reach this node; `patience` is this member's.

    Raises:
        CalledOff: a newer generation has been published.
        GroupBroken: a member died, or did not come within `FORM_TIMEOUT_S`. Another generation follows.
    """
    patience = patience or Patience()
    if size == 1:
        return Group(generation, rank, size, patience=patience)
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stub
    options._timeout = timedelta(seconds=FORM_TIMEOUT_S)
    device, own = listening(lambda: dist.ProcessGroupGloo.create_device(hostname=address))
    options._devices = [device]
    store.set(f"listens/{rank}", json.dumps(sorted(own)))
    try:
        backend = dist.ProcessGroupGloo(store, rank, size, options)
        backend._set_default_timeout(timedelta(seconds=patience.timeout_s))
    except CalledOff:
        raise
    except RuntimeError as error:
        raise GroupBroken(str(error)) from error
    return Group(generation, rank, size, backend, lambda: cut(own, _addresses(store)), patience)


def _addresses(store: Rendezvous) -> set[Address]:
    """Addresses at which the members listen, as far as their entries have arrived."""
    said = [json.loads(entry) for key, entry in store.entries().items() if key.startswith("listens/")]
    return {(host, port) for addresses in said for host, port in addresses}


class Waiter:
    """A thread that waits for one operation after the other, and says how each ended.

    The operations bear no look at the clock meanwhile: one that is given up breaks its group. So where one
    never ends, this thread is left behind with it; its group has failed by then. `wait` waits for an
    operation and returns why it failed, or None.
    """

    def __init__(self, wait: Callable[[Any, timedelta], str | None]) -> None:
        self._wait = wait
        self._works: SimpleQueue[tuple[list[Any], timedelta, SimpleQueue[str | None]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ended(self, work: Any, limit: timedelta) -> SimpleQueue[str | None]:
        """Wait for `work` in the background, once those before are over. Its outcome comes out of the queue
        that this returns."""
        outcome: SimpleQueue[str | None] = SimpleQueue()
        self._works.put(([work], limit, outcome))
        with self._lock:
            if self._thread is None:
                self._thread = start(self._run, "bftrainer-wait")
        return outcome

    def close(self) -> None:
        """End the thread, once what it has been given is over."""
        self._works.put(None)

    def _run(self) -> None:
        while (given := self._works.get()) is not None:
            held, limit, outcome = given
            with calling():
                outcome.put(self._wait(held.pop(), limit))  # which holds the work no longer, see `Pending`
