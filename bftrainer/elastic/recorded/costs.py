"""A recorder's observers of a run: of costs for `bftrainer try --partial`, and of steps asked for again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import Trained

LOOK_EVERY = 4
"""Steps between counts of the bytes that a forward pass keeps: counting takes time of its own."""


class StepCosts(StepObserver):
    """Notes a step's processor time, what its forward pass keeps, and for how many numbers it has gradients.

    Args:
        write: called with a step's costs, by names.
        cut: steps after which the run ends.
    """

    run: Any = None
    """The run itself, once it begins."""

    def __init__(self, trained: Trained, write: Callable[..., None], cut: int) -> None:
        self._write, self._cut = write, cut
        self._parameters = [p for model in trained.models.values() for p in model.parameters()]
        self._clear(None)

    def _clear(self, share: RankShare | None) -> None:
        self._share, self._since, self._counting = share, 0.0, None
        self._forward = self._backward = self._loss = 0.0
        self._saved: dict[int, int] = {}
        self._computed = 0

    _counting: Any

    def step_begins(self, share: RankShare) -> None:
        self._clear(share)

    def before_compute(self) -> None:
        if self._share is not None and self._share.after.step % LOOK_EVERY == 0:
            self._counting = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept)
            self._counting.__enter__()
        self._since = time.thread_time()

    def before_backward(self, optimizer: str, part: MicroBatch, loss: torch.Tensor) -> None:
        now = time.thread_time()
        self._forward += now - self._since
        self._stop_counting()
        self._loss += loss.item() * part.weight
        self._since = time.thread_time()

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        self._backward += time.thread_time() - self._since
        if part.last:
            self._computed = sum(p.numel() for p in self._parameters if p.grad is not None)

    def step_taken(self, *, has_state: bool) -> None:
        share = self._share
        if share is None or not share.size or self.run is None:
            return
        mine = {p.untyped_storage().data_ptr() for p in self._parameters}
        self._write(
            "cost",
            step=share.after.step,
            rank=self.run.rank,
            workers=share.ranks,
            samples=share.size,
            total=share.total,
            loss=self._loss,
            forward=self._forward,
            backward=self._backward,
            saved=sum(size for at, size in self._saved.items() if at not in mine) if self._saved else None,
            computed=self._computed,
        )
        if share.after.step >= self._cut:
            self.run.stop()

    def step_ends(self, *, is_whole: bool) -> None:
        self._stop_counting()

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self._saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def _stop_counting(self) -> None:
        if self._counting is not None:
            self._counting.__exit__(None, None, None)
            self._counting = None


class AskedSteps(StepObserver):
    """Has a recorder forget samples of an optimiser that had its step before a member was lost.

    The batch comes again then, and with it all passes of a script with several optimisers. Those for a step
    that was taken belong to no step, and not to that of the optimiser which comes next.
    """

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._asked: tuple[int, int] | None = None  # samples and steps, when the last step was asked for

    def step_begins(self, share: RankShare) -> None:
        self._asked = None

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        noted, taken = self._recorder._rows, sum(self._recorder._steps)
        if self._asked is not None and self._asked[1] == taken:
            del noted[: self._asked[0]]
        self._asked = (len(noted), taken) if part.last else None
