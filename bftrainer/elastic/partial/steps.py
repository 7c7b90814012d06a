"""The steps of a run under partial back-propagation: who computes what, and the exchange of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.partial.exchange import sent, sum_prefixes
from bftrainer.elastic.partial.options import Partial
from bftrainer.elastic.partial.order import Completed, GradientOrder, ordered, role
from bftrainer.elastic.partial.trial import TrialWatch
from bftrainer.elastic.state.leaves import as_real
from bftrainer.elastic.state.training_state import Stateful, TrainingState
from bftrainer.elastic.train.average import Flat, as_parameter
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.overlapped import Watch
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import Trained
from bftrainer.elastic.train.update import Update

PART = "order of gradients"
"""The name of its part of the training state; no part of a script can have it."""
TRIALS = 3
"""Full steps to watch; the first ones of a process are slower, and count as well."""


class PartialSteps(StepObserver):
    """An averaging (`train.average.Averaging`) in which a worker freezes what lies before its part; the
    run's events tell it of steps.

    A step is full where it is warm-up or trial, one worker has samples, or a member receives the state. What
    was measured in trials is a part of the training state, so all members cut alike.
    """

    needs_batch, averages, overlaps = False, True, False
    _state: TrainingState
    _peers: SingleProcess
    _update: Update

    def __init__(self, options: Partial, trained: Trained, trainable: Trainable) -> None:
        self.model = trained.model
        self.watch: Watch | None = None
        self.sums: torch.Tensor | None = None
        self._trial = TrialWatch(trained.models)
        self._options, self._trainable = options, trainable
        self._flat = Flat(trained.model, trainable)
        self._group, self._weight = Group(0, 0, 1), 1.0
        self._parameters: dict[str, torch.Tensor] = {}
        self._watched: list[list[tuple[float, float]]] = []
        self._coming: list[list[float]] | None = None
        self._names: tuple[str, ...] = ()
        self._order: GradientOrder | None = None
        self._counts: list[int] | None = None
        self._before: tuple[str, ...] = ()  # the parameters that lie before this worker's part
        self._frozen: list[torch.Tensor] = []

    def connect(self, update: Update, peers: SingleProcess) -> None:
        """The other parts of the run, which are made later."""
        self._update, self._peers = update, peers

    # events of the run

    def parts(self) -> Mapping[str, Stateful]:
        return {PART: self}

    def enters(self, state: TrainingState) -> None:
        self._state = state

    def step_begins(self, share: RankShare) -> None:
        """See `StepObserver`: say what each rank computes."""
        position = self._state.position
        self._parameters = self._trainable.named()
        if self._names != (names := tuple(self._parameters)):
            self._names, self._watched, self._order = names, [], None
        warm = self._options
        is_alone = len(self._peers.working) < self._peers.group.size or share.ranks < 2
        is_warming = position.step < warm.warmup_steps or position.epoch < warm.warmup_epochs
        self._counts, self._coming, self._before = None, None, ()
        if self._order is None and len(self._peers.working) == self._peers.group.size:
            self._trial.watch(self._parameters)
        elif self._order is not None and not is_alone and not is_warming:
            workers, order = share.ranks, self._order
            shares = [role(i, position.step, workers) / workers for i in range(workers)]
            self._counts = [order.count(each) for each in shares] + [0] * (self._peers.size - workers)
            self._before = order.names[self._counts[self._peers.group.rank] :]

    def before_backward(self, optimizer: str, part: MicroBatch, loss: torch.Tensor) -> None:
        self._trial.before_backward()

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        """See `StepObserver`: what was frozen is trained again."""
        self._thaw()
        self._trial.after_backward(part)

    def step_taken(self, *, has_state: bool) -> None:
        """See `StepObserver`: what was measured in the step counts. Enough of it gives the order."""
        if self._coming is None:
            return
        self._watched.append([(index / has, s / has) for index, s, has in self._coming])
        self._coming = None
        self._settle_order()

    def step_ends(self, *, is_whole: bool) -> None:
        self._trial.close()

    # the averaging of a step

    def begin(self, group: Group, weight: float, only: int | None = None) -> None:
        """See `Averaging.begin`."""
        self._group, self._weight = group, weight
        self._flat.begin(group, weight, only)

    @contextlib.contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """See `Averaging.micro_batch`: what lies before this worker's part is frozen within."""
        self._frozen = [p for name in self._before if (p := self._parameters[name]).requires_grad]
        for p in self._frozen:
            p.requires_grad_(False)
        try:
            yield
        finally:
            self._thaw()

    def absent(self) -> None:
        """See `Averaging.absent`: a missing gradient counts as zeros."""

    def _thaw(self) -> None:
        for p in self._frozen:
            p.requires_grad_(True)
        self._frozen = []

    def finish(self, name: str) -> None:
        """See `Averaging.finish`; each parameter's mean is over the workers that have computed it."""
        self._update.shares = {}
        if self._counts is not None and self._order is not None:
            self._finish_partial(self._order, self._counts)
            return
        is_trial = self._order is None and len(self._peers.working) == self._group.size
        seen = self._trial.read(self._parameters) if is_trial else []
        self._flat.finish(name)
        if is_trial:
            has = float(self._weight > 0)
            numbers = torch.tensor([[has * a, has * b, has] for a, b in seen], dtype=torch.float64)
            self._group.all_reduce(numbers)
            self._coming = numbers.tolist()

    # the training state

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state."""
        watched = [[list(each) for each in trial] for trial in self._watched]
        return {"names": list(self._names), "watched": watched}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Cut as the members do."""
        self._names, self._order = tuple(state_dict["names"]), None
        self._watched = [[(float(a), float(b)) for a, b in trial] for trial in state_dict["watched"]]
        self._settle_order()

    def _settle_order(self) -> None:
        if len(self._watched) < TRIALS:
            return
        fastest = min(self._watched, key=lambda trial: max(s for _, s in trial))
        found = [Completed(name, i, s) for name, (i, s) in zip(self._names, fastest, strict=True)]
        self._order = ordered(found, self._options.by)

    # parts

    def _finish_partial(self, order: GradientOrder, counts: list[int]) -> None:
        for p in self._trainable.unknown():  # the script has unfrozen it within this step
            p.grad = None
        parameters = [self._parameters[name] for name in order.names]
        sizes = [as_real(p.detach()).numel() for p in parameters]
        lengths = [sum(sizes[:count]) for count in counts]
        mine = counts[self._group.rank]
        about = torch.zeros(2, len(parameters), dtype=torch.float64)
        about[0, :mine] = self._weight
        about[1, :mine] = torch.tensor([float(p.grad is not None) for p in parameters[:mine]])
        self._group.all_reduce(about)
        own = self._packed(parameters[:mine], lengths[self._group.rank])
        whole = sum_prefixes(self._group, own, lengths, sum(sizes))
        shares, there = about.tolist()
        means = torch.split(whole, sizes)
        for p, numbers, share, count in zip(parameters, means, shares, there, strict=True):
            p.grad = as_parameter(p, numbers / share).to(p.device, p.dtype) if count else None
        if self._options.lr == "share":
            self._update.shares = {id(p): share for p, share in zip(parameters, shares, strict=True)}
        self._report(order, counts, lengths, sum(sizes), whole.element_size())

    def _packed(self, parameters: list[torch.Tensor], length: int) -> torch.Tensor:
        """The gradients one after the other, times this rank's weight."""
        flat = torch.zeros(length, dtype=self._flat.kind, device=self._group.device)
        start = 0
        for p in parameters:
            size = as_real(p.detach()).numel()
            if p.grad is not None:
                numbers = as_real(p.grad.detach()).reshape(-1)
                flat[start : start + size].copy_(numbers).mul_(self._weight)
            start += size
        return flat

    def _report(
        self, order: GradientOrder, counts: list[int], lengths: list[int], total: int, each_bytes: int
    ) -> None:
        ranks = len(lengths)
        depth = sum(order.ends[count - 1] for count in counts if count) / sum(1 for c in counts if c)
        figures: Mapping[str, float] = {
            "partial.depth": depth,
            "partial.bytes": sent(lengths, total) * each_bytes,
            "partial.bytes_full": 2.0 * (ranks - 1) / ranks * total * each_bytes,
        }
        self._peers.report(figures, now=False)
