"""Averaging the gradients of all ranks: the mean over the samples of the global batch.

`Flat` does it after the backward pass, `Each` so for one of several optimisers at a time, `Overlapped` while
the pass runs, with PyTorch's own DistributedDataParallel, and `ByScript` leaves it to the script. A rank
without a batch takes part by `absent`. Only `finish` raises: `GroupBroken`, and `Overlapped` where the script
has gone past DDP.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.state.leaves import as_real
from bftrainer.elastic.train.overlapped import Overlapped, Watch
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import Trained
from bftrainer.messages.arguments import DDP_NOT_AVERAGED, DDP_SEVERAL, DDP_WRAPPED

Own = list[tuple[torch.Tensor, int] | None]
"""A rank's own gradients, each with what tells whether it has changed since."""


class Averaging(Protocol):
    """One step is: `begin`, the micro-batches each within `micro_batch`, or else `absent`, then `finish`."""

    model: torch.nn.Module
    """Model that the script calls in the forward pass."""
    needs_batch: bool
    """True if a rank without samples must work on a stand-in for a batch."""
    averages: bool
    """True if the run averages the gradients, not the script."""
    overlaps: bool
    """True if it does so during the backward pass."""
    watch: Watch | None
    """Shown this rank's own gradients before they are averaged with others'."""
    sums: torch.Tensor | None
    """A few numbers in single precision, as many on all ranks: `finish` sums them over the ranks, too."""

    def begin(self, group: Group, weight: float, only: int | None = None) -> None:
        """Begin a step, in which the mean of this rank's samples counts `weight` in the mean of all. `only`
        says that a single rank has samples, and which: its gradients are the mean."""

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Around the work on a micro-batch; `last`: no other follows in this step."""

    def absent(self) -> None:
        """Take part without a batch."""

    def finish(self, name: str) -> None:
        """Complete the exchange: the gradients of an optimiser's parameters are now the mean over the global
        batch. Where there is one optimiser, `name` says nothing.

        Raises:
            GroupBroken: a member was lost; gradients are of no use.
        """


class Flat:
    """All gradients in one exchange after the backward pass; sparse ones travel as if they were dense."""

    needs_batch, averages, overlaps = False, True, False

    def __init__(
        self, model: torch.nn.Module, trainable: Trainable, among: Sequence[torch.Tensor] | None = None
    ) -> None:
        self.model = model
        self._trainable = trainable
        self._among = None if among is None else {id(p) for p in among}
        self._parameters = self._averaged()
        self._sparse = {
            id(each.weight)
            for each in model.modules()
            if isinstance(each, torch.nn.Embedding | torch.nn.EmbeddingBag) and each.sparse
        }
        double = any(p.dtype in (torch.float64, torch.complex128) for p in self._parameters)
        self.kind = torch.float64 if double else torch.float32
        self._group = Group(0, 0, 1)
        self._weight = 1.0
        self._only: int | None = None
        self.watch: Watch | None = None
        self.sums: torch.Tensor | None = None

    def begin(self, group: Group, weight: float, only: int | None = None) -> None:
        """See `Averaging.begin`."""
        self._group, self._weight, self._only = group, weight, only
        if group.size > 1:
            self._parameters = self._averaged()

    def _averaged(self) -> list[torch.Tensor]:
        found = self._trainable.averaged()
        return found if self._among is None else [p for p in found if id(p) in self._among]

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """See `Averaging.micro_batch`: nothing to do around one."""
        return contextlib.nullcontext()

    def absent(self) -> None:
        """See `Averaging.absent`: a missing gradient counts as zeros."""

    def finish(self, name: str) -> None:
        """See `Averaging.finish`."""
        if self._group.size > 1:
            self.put(self.exchanged())

    def exchanged(self) -> torch.Tensor:
        """The means of all gradients over the global batch, as `put` takes them.

        Raises:
            GroupBroken: a member was lost.
        """
        for p in self._trainable.unknown():  # to ranks that receive the state, which do not run the script
            p.grad = None
        if self.watch is not None:
            self.watch(self._parameters, [p.grad for p in self._parameters], self._weight)
        flat = self._packed()
        self._group.begin_total(flat, self._only).wait()
        if self.sums is not None:
            flat, sums = flat[: -len(self.sums)], flat[-len(self.sums) :]
            self.sums.copy_(sums)
        return flat

    def own(self) -> Own:
        """This rank's own gradients."""
        return [None if p.grad is None else (p.grad, p.grad._version) for p in self._parameters]

    def put(self, flat: torch.Tensor) -> None:
        """Make means the parameters' gradients. A parameter without one on any rank keeps none: a count for
        each parameter is exchanged, too."""
        present = flat[-len(self._parameters) :]
        start = 0
        for p, there in zip(self._parameters, present.tolist(), strict=True):
            size = as_real(p.detach()).numel()
            mean = as_parameter(p, flat[start : start + size]).to(p.device, p.dtype)
            start += size
            if id(p) in self._sparse:
                mean = _sparse_again(mean, flat[start : start + len(p)].to(p.device))
                start += len(p)
            if there:
                p.grad = mean

    def _packed(self) -> torch.Tensor:
        """All gradients one after the other, times this rank's weight; if each is there; and `sums`."""
        count, sizes = len(self._parameters), [self._size(p) for p in self._parameters]
        more = 0 if self.sums is None else len(self.sums)
        whole = torch.empty(sum(sizes) + count + more, dtype=self.kind, device=self._group.device)
        if self._only not in (None, self._group.rank):
            return whole
        flat = whole[: len(whole) - more]
        for p, there in zip(self._parameters, torch.split(flat[:-count], sizes), strict=True):
            if p.grad is None:
                there.zero_()
                continue
            numbers = as_real(p.grad.detach().to_dense()).reshape(-1)
            there[: len(numbers)].copy_(numbers).mul_(self._weight)
            if id(p) in self._sparse:
                there[len(numbers) :].copy_(_rows(p.grad))
        flat[-count:] = torch.tensor([float(p.grad is not None) for p in self._parameters])
        if self.sums is not None:
            whole[-more:].copy_(self.sums)
        return whole

    def _size(self, p: torch.Tensor) -> int:
        return as_real(p.detach()).numel() + (len(p) if id(p) in self._sparse else 0)


def as_parameter(like: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The inverse of `as_real`: a tensor of the shape of `like`."""
    if not like.is_complex():
        return numbers.view_as(like)
    # of its own memory: after an odd count of numbers PyTorch cannot view them as complex ones
    return torch.view_as_complex(numbers.view(*like.shape, 2).clone())


def _rows(gradient: torch.Tensor) -> torch.Tensor:
    """1 for each row that a sparse gradient has, as some optimisers step those alone; -1 throughout for a
    dense one, which tied weights have."""
    if not gradient.is_sparse:
        return torch.full((len(gradient),), -1.0, device=gradient.device)
    rows = torch.zeros(len(gradient), device=gradient.device)
    rows[gradient.coalesce().indices()[0]] = 1.0
    return rows


def _sparse_again(mean: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The mean of all gradients with the rows that any rank has; `rows` is the sum of all ranks' `_rows`."""
    if (rows < 0).any():
        return mean
    here = rows.nonzero()[:, 0]
    return torch.sparse_coo_tensor(here[None], mean[here], mean.shape, check_invariants=False)


class Each:
    """The gradients of one optimiser after the other, in the order in which the script steps them. A rank
    without samples must run the script, too: nothing else knows that order.

    Where one loss has gradients for several optimisers, all are exchanged before the first of them steps. If
    a member is lost between two steps, its share of them could not be computed again: weights are others.
    """

    needs_batch, averages, overlaps = True, True, False

    def __init__(self, trained: Trained, trainable: Trainable) -> None:
        self.model = trained.model
        self.watch: Watch | None = None
        self.sums: torch.Tensor | None = None
        self._group = Group(0, 0, 1)
        steps = {
            name: [p for group in one.param_groups for p in group["params"]]
            for name, one in trained.optimizers.items()
        }
        self._flats = {name: Flat(self.model, trainable, among) for name, among in steps.items()}
        ids = {name: {id(p) for p in among} for name, among in steps.items()}
        self._apart = {
            name: [other for other in ids if ids[name].isdisjoint(ids[other])] for name in ids
        }  # of two that step the same parameters, the second has other gradients
        self._early: dict[str, tuple[Own, torch.Tensor]] = {}

    def begin(self, group: Group, weight: float, only: int | None = None) -> None:
        """See `Averaging.begin`. Others' stand-ins say which parameters have a gradient, too."""
        self._group, self._early = group, {}
        for flat in self._flats.values():
            flat.begin(group, weight)

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """See `Averaging.micro_batch`: nothing to do around one."""
        return contextlib.nullcontext()

    def absent(self) -> None:
        """See `Averaging.absent`: never the case."""

    def finish(self, name: str) -> None:
        """See `Averaging.finish`. It does not fail where the means have come with another optimiser's."""
        if self._group.size == 1:
            return
        early = self._early.pop(name, None)
        if early is None or self._has_changed(name, early[0]):
            self._flats[name].put(self._exchanged(name))
        else:
            self._flats[name].put(early[1])

    def _exchanged(self, name: str) -> torch.Tensor:
        """The means of an optimiser's gradients; those of others that are there, too, are kept."""
        flat, others = self._flats[name], [each for each in self._apart[name] if each not in self._early]
        there = [float(any(self._flats[other].own())) for other in others]
        flat.sums = torch.tensor(there) if there else None  # all ranks exchange what any of them has
        means = flat.exchanged()
        for other, ranks in zip(others, () if flat.sums is None else flat.sums.tolist(), strict=True):
            if ranks:
                self._early[other] = self._flats[other].own(), self._flats[other].exchanged()
        return means

    def _has_changed(self, name: str, own: Own) -> bool:
        """True if any rank has computed on its gradients since they were averaged. Where a member is lost,
        each goes by its own."""
        now = self._flats[name].own()
        is_same = all(
            a is b if a is None or b is None else a[0] is b[0] and a[1] == b[1]
            for a, b in zip(own, now, strict=True)
        )
        others = torch.tensor([float(not is_same)])
        try:
            self._group.sum_up(others)
        except GroupBroken:
            return not is_same
        return bool(others)


class ByScript:
    """The script averages by itself, with `torch.distributed` and `Run.weight`: nothing to do here."""

    needs_batch, averages, overlaps = True, False, False

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._group = Group(0, 0, 1)
        self.watch: Watch | None = None
        self.sums: torch.Tensor | None = None

    def begin(self, group: Group, weight: float, only: int | None = None) -> None:
        """See `Averaging.begin`: the script does it."""
        self._group = group

    def micro_batch(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """See `Averaging.micro_batch`: nothing to do around one."""
        return contextlib.nullcontext()

    def absent(self) -> None:
        """See `Averaging.absent`: the script does it."""

    def finish(self, name: str) -> None:
        """See `Averaging.finish`: the script does it, but for `sums`."""
        self._group.check()
        if self.sums is not None:
            self._group.sum_up(self.sums)


def chosen(trained: Trained, ddp: bool | Mapping[str, Any], average: bool, trainable: Trainable) -> Averaging:
    """The averaging that a run's options `ddp` and `average` ask for.

    Raises:
        TypeError: a model is wrapped in DistributedDataParallel already.
        ValueError: `ddp` together with `average=False`, or with several models or optimisers.
    """
    if any(isinstance(model, torch.nn.parallel.DistributedDataParallel) for model in trained.models.values()):
        raise TypeError(DDP_WRAPPED.say())
    if not average and ddp is not False:
        raise ValueError(DDP_NOT_AVERAGED.say())
    if ddp is not False and (trained.is_several or len(trained.models) > 1):
        raise ValueError(DDP_SEVERAL.say())
    if not average:
        return ByScript(trained.model)
    if trained.is_several:
        return Each(trained, trainable)
    if ddp is False:
        return Flat(trained.model, trainable)
    return Overlapped(trained.model, {} if ddp is True else ddp)
