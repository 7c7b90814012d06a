"""Making one gradient of all ranks' gradients: the mean over the samples of the global batch.

`Flat` does it after the backward pass, `Overlapped` while it runs, with PyTorch's own
DistributedDataParallel, and `ByScript` leaves it to the script. All of them may be asked to take part
without a batch (`absent`), and raise nothing but `GroupBroken`, from `finish`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from bftrainer.elastic.members.group import Group, GroupBroken, Pending


class Averaging(Protocol):
    """One step is: `begin`, the micro-batches each within `piece`, or else `absent`, then `finish`."""

    model: torch.nn.Module
    """What the script calls in the forward pass."""
    needs_batch: bool
    """Whether a rank that has no samples needs a stand-in for a batch."""

    def begin(self, group: Group, weight: float) -> None:
        """A step begins in which this rank's mean counts `weight`."""

    def piece(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Around a micro-batch."""

    def absent(self) -> None:
        """Take part without a batch."""

    def finish(self) -> None:
        """The gradients are the mean over the global batch from here on."""


class Flat:
    """All gradients in one exchange after the backward pass."""

    needs_batch = False

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        double = any(p.dtype is torch.float64 for p in self._parameters)
        self._kind = torch.float64 if double else torch.float32
        self._group = Group(0, 0, 1)
        self._weight = 1.0

    def begin(self, group: Group, weight: float) -> None:
        self._group, self._weight = group, weight

    def piece(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def absent(self) -> None:
        pass  # no gradients are as good as zeros

    def finish(self) -> None:
        """A parameter that has no gradient anywhere keeps none: a count per parameter travels along."""
        if self._group.size == 1:
            return
        flat = self._packed()
        self._group.all_reduce(flat)
        present = flat[-len(self._parameters) :]
        start = 0
        for p, there in zip(self._parameters, present.tolist(), strict=True):
            mean = flat[start : start + p.numel()].view_as(p).to(p.device, p.dtype)
            start += p.numel()
            if there:
                p.grad = mean

    def _packed(self) -> torch.Tensor:
        device = self._group.device
        parts = []
        for p in self._parameters:
            if p.grad is None:
                parts.append(torch.zeros(p.numel(), dtype=self._kind, device=device))
            else:
                parts.append(p.grad.detach().reshape(-1).to(device, self._kind) * self._weight)
        present = [float(p.grad is not None) for p in self._parameters]
        return torch.cat([*parts, torch.tensor(present, dtype=self._kind, device=device)])


class ByScript:
    """The script averages by itself, with `torch.distributed` and the weight of its batch."""

    needs_batch = True

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def begin(self, group: Group, weight: float) -> None:
        pass

    def piece(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def absent(self) -> None:
        pass

    def finish(self) -> None:
        pass


class Overlapped:
    """DistributedDataParallel, whose buckets go through whatever group there is at the moment.

    DDP sees a group of one that never fails (`_Calm`), so it outlives every rescale and no error comes
    up in the script's forward or backward pass; a hook exchanges the buckets. DDP is kept from making
    its buckets anew after the first step, since newcomers would have other ones than the rest.
    """

    needs_batch = False

    def __init__(self, model: torch.nn.Module, options: Mapping[str, Any]) -> None:
        self._calm = _Calm(self)
        self._ddp = DistributedDataParallel(
            model, process_group=self._calm, init_sync=False, find_unused_parameters=True, **options
        )
        self._ddp.register_comm_hook(None, lambda _, bucket: self._exchange(bucket))
        self.model: torch.nn.Module = self._ddp
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._group = Group(0, 0, 1)
        self._weight = 1.0
        self._under_way: list[tuple[torch.Tensor, torch.Tensor, Pending, Future[torch.Tensor]]] = []
        self._broken: str | None = None

    def begin(self, group: Group, weight: float) -> None:
        self._group, self._weight, self._broken = group, weight, None

    @contextlib.contextmanager
    def piece(self, *, last: bool) -> Any:
        with contextlib.nullcontext() if last else self._ddp.no_sync():
            yield

    def absent(self) -> None:
        """A backward pass that reaches no more than one parameter: DDP fills in zeros for the others."""
        nothing = self._parameters[0].sum() * 0.0
        self._ddp.reducer.prepare_for_backward([nothing])
        nothing.backward()  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        if self._broken is not None:
            raise GroupBroken(self._broken)

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Add up DDP's note of which parameters have a gradient; it counts only where there is a batch."""
        if self._weight == 0.0:
            tensor.zero_()
        moved = tensor.to(self._group.device)
        with self._noted():
            self._group.all_reduce(moved)
        tensor.copy_(moved)

    def _exchange(self, bucket: Any) -> Future[torch.Tensor]:
        """DDP's hook: the exchange of a bucket begins while the backward pass goes on."""
        buffer = bucket.buffer()
        future: Future[torch.Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
        buffer.mul_(self._weight) if self._weight else buffer.zero_()
        moved, pending = buffer.to(self._group.device), Pending(None)
        with self._noted():
            pending = self._group.begin_all_reduce(moved)
        self._under_way.append((buffer, moved, pending, future))
        if bucket.is_last():
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
        """Once the group is broken the rest of the pass is for nothing, but has to come to its end."""
        try:
            yield
        except GroupBroken as error:
            self._broken = self._broken or str(error)


class _Calm(dist.ProcessGroup):
    """What DDP takes for its process group: one rank, and nothing ever goes wrong."""

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
