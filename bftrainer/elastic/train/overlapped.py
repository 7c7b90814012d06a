"""Averaging while the backward pass runs, with PyTorch's DistributedDataParallel (DDP)."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from bftrainer.elastic.members.group import Group, GroupBroken, Pending
from bftrainer.elastic.state.leaves import as_real
from bftrainer.messages.arguments import DDP_IS_SET, DDP_TOO_OLD, DDP_UNKNOWN
from bftrainer.messages.loop import NOT_AVERAGED

OWN: Mapping[str, Any] = {"find_unused_parameters": True, "init_sync": False, "static_graph": False}
"""The options of DDP that the run sets."""
GROUP = "the run has a group of its own, which lasts while nodes come and go"
SET = {
    "find_unused_parameters": "with False DDP arranges its buckets anew after the first step, and nodes that "
    "come later would have others",
    "static_graph": "with True DDP arranges its buckets anew after the first step, and nodes that come later "
    "would have others",
    "init_sync": "nodes that come get their weights from the run",
    "process_group": GROUP,
    "device_mesh": GROUP,
}
"""Reasons why the script cannot set these otherwise."""


Watch = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor | None], float], None]
"""Called with parameters, a rank's own gradients of them, and what these count in the mean over all ranks."""


class Overlapped:
    """DistributedDataParallel, with a hook that exchanges its buckets in the present group.

    DDP itself has a group of one rank that never fails (`_OneRank`). So one wrapper lasts through all
    rescales, and no error comes up in the script's forward or backward pass. `find_unused_parameters` keeps
    DDP from rearranging its buckets after the first step: newcomers would have other buckets than the
    rest. The passes of a member alone are `no_sync` for DDP: there is nothing to exchange.
    """

    needs_batch, averages, overlaps = False, True, True

    def __init__(self, model: torch.nn.Module, options: Mapping[str, Any]) -> None:
        self._one_rank = _OneRank(self)
        self._ddp = DistributedDataParallel(
            model, process_group=self._one_rank, **{**_checked(options), **OWN}
        )
        self._ddp.register_comm_hook(None, lambda _, bucket: self._exchange(bucket))
        self._ddp.register_forward_pre_hook(self._note_forward)
        self.model: torch.nn.Module = self._ddp
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._group = Group(0, 0, 1)
        self._weight = 1.0
        self._only: int | None = None
        self._under_way: list[tuple[torch.Tensor, torch.Tensor, Pending, Future[torch.Tensor]]] = []
        self._broken: str | None = None
        self._is_averaged = False  # the present step
        self.watch: Watch | None = None
        self.sums: torch.Tensor | None = None

    def begin(self, group: Group, weight: float, only: int | None = None) -> None:
        """See `Averaging.begin`."""
        if group is not self._group:  # DDP remembers which parameters were used since it last exchanged
            self._ddp.reducer._reset_state()
        self._group, self._weight, self._only, self._broken = group, weight, only, None
        self._is_averaged = False

    @contextlib.contextmanager
    def micro_batch(self, *, last: bool) -> Any:
        """See `Averaging.micro_batch`: DDP exchanges in the last backward pass only."""
        with contextlib.nullcontext() if last and self._group.size > 1 else self._ddp.no_sync():
            yield

    def absent(self) -> None:
        """See `Averaging.absent`: a backward pass that reaches one parameter; DDP fills in zeros for the
        others."""
        nothing = self._parameters[0].sum() * 0.0
        self._ddp.reducer.prepare_for_backward([nothing])
        nothing.backward()  # type: ignore[no-untyped-call]

    def finish(self, name: str) -> None:
        """See `Averaging.finish`.

        Raises:
            GroupBroken: a member was lost during the backward pass.
            RuntimeError: the script's forward pass went past DDP, so that nothing was averaged.
        """
        self._group.check()
        if self._broken is not None:
            raise GroupBroken(self._broken)
        if not self._is_averaged:
            raise RuntimeError(NOT_AVERAGED.say())

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum DDP's map of the parameters that have a gradient over all ranks; ranks without a batch add
        zeros."""
        if self._weight == 0.0:
            tensor.zero_()
        with self._noted():
            self._group.sum_up(tensor)

    def _note_forward(self, *_: Any) -> None:
        """Note the passes of the wrapped model: with one member they are all there is to see."""
        self._is_averaged |= self._group.size == 1 and torch.is_grad_enabled()

    def _exchange(self, bucket: Any) -> Future[torch.Tensor]:
        """DDP's hook: start to exchange a bucket, while the backward pass goes on."""
        self._is_averaged = True
        buffer = bucket.buffer()
        if self.watch is not None and self._group.size > 1:
            self.watch(bucket.parameters(), bucket.gradients(), self._weight)
        future: Future[torch.Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        if self._weight != 1.0:  # that of a run's only member
            buffer.mul_(self._weight) if self._weight else buffer.zero_()
        moved, pending = self._group.moved(buffer), Pending(None)
        with self._noted():
            pending = self._group.begin_total(as_real(moved), self._only)
        self._under_way.append((buffer, moved, pending, future))
        if bucket.is_last():
            if self.sums is not None:
                with self._noted():  # while the last bucket's exchange is under way
                    self._group.sum_up(self.sums)
            self._wait()
        return future

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, []
        for buffer, moved, pending, future in under_way:
            with self._noted():
                pending.wait()
            if moved is not buffer:
                buffer.copy_(moved)
            future.set_result(buffer)

    @contextlib.contextmanager
    def _noted(self) -> Any:
        """Keep the first failure of the group for `finish`: the backward pass must come to its end
        first."""
        try:
            yield
        except GroupBroken as error:
            self._broken = self._broken or str(error)


def _checked(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """A script's options for DDP, if the run need not set them otherwise.

    Raises:
        ValueError, TypeError: one is, or DDP has none of this name.
        RuntimeError: this PyTorch's DDP meets its group at once, which can be no group of one rank.
    """
    known = inspect.signature(DistributedDataParallel).parameters.keys() - {"module"}
    for name, value in options.items():
        if name in SET and value is not OWN.get(name):
            raise ValueError(DDP_IS_SET.say(name=name, value=value, why=SET[name]))
        if name not in known:
            raise TypeError(DDP_UNKNOWN.say(name=name, known=", ".join(sorted(known))))
    if not known >= OWN.keys():
        raise RuntimeError(DDP_TOO_OLD.say(version=torch.__version__))
    return {name: value for name, value in options.items() if name not in SET}


class _OneRank(dist.ProcessGroup):
    """DDP's process group: one rank, whose collectives never fail."""

    def __init__(self, owner: Overlapped) -> None:
        super().__init__(0, 1)  # type: ignore[call-arg]  # missing in torch's stub
        self._owner = owner

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        return "bftrainer"

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> Any:  # type: ignore[override]
        for tensor in tensors:
            self._owner.all_reduce(tensor)
        return _Done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], options: Any = None) -> Any:  # type: ignore[override]
        return _Done(tensors)  # buffers stay each rank's own


class _Done(dist.Work):
    """A collective that is over."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._future: Future[list[torch.Tensor]] = Future()
        self._future.set_result(tensors)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def get_future(self) -> Any:
        return self._future
