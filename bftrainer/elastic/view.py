"""What a script may ask of its run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from bftrainer.elastic import warned
from bftrainer.elastic.identity import Identity
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.membership import Leave
from bftrainer.elastic.peers import SingleProcess
from bftrainer.elastic.state.forgotten import forgotten
from bftrainer.elastic.state.own_optimizers import OwnOptimizers
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import Position
from bftrainer.elastic.train.turn import Turn

LATE_S = 1.0

Hook = TypeVar("Hook", bound=Callable[[], object])


class RunView(Identity):
    """The part of a `Run` that changes nothing in it: where it stands, its reports, its hooks."""

    def __init__(
        self, averaging: Averaging, state: TrainingState, peers: SingleProcess, orders: Orders | None
    ) -> None:
        self._averaging, self._state, self._peers, self._orders = averaging, state, peers, orders
        self._life = "outside"  # or inside, from `start` to the loop's end, then over
        self._entered_at = 0.0
        self._hooks: list[Callable[[], object]] = []
        self._in_hook = False
        self._epoch_hooks: list[Callable[[], object]] = []
        self._own: OwnOptimizers | None = None  # from when it has its state
        self._turn: Turn | None = None  # the step that is under way
        self._part: MicroBatch | None = None  # that the script works on

    @property
    def model(self) -> torch.nn.Module:
        """What to call in the forward pass: the model, with `ddp` wrapped; of several, `run.model["G"]`."""
        return self._averaging.model

    @property
    def rank(self) -> int:
        """This worker's number, from 0, among those that share the samples right now. A node runs one, or one
        for each of its GPUs."""
        self.start()
        return self._rank

    @property
    def _rank(self) -> int:
        place = self._peers.place
        return self._peers.group.rank if place is None else place

    @property
    def size(self) -> int:
        """The number of workers that share the samples right now."""
        self.start()
        return self._peers.size

    @property
    def generation(self) -> int:
        """The number of the present membership; it grows with every change. 0 if started by hand."""
        self.start()
        return self._peers.group.generation

    @property
    def position(self) -> Position:
        """Step, samples, epoch and place in it, all counted over all nodes."""
        self.start()
        return self._state.position

    @property
    def weight(self) -> float:
        """What the mean over this node's present batch counts in the mean over all nodes' batches.

        It is 0 where there are fewer samples left than nodes, and the batch is a stand-in.
        """
        return 0.0 if self._turn is None else self._turn.share.weight

    @property
    def accumulating(self) -> bool:
        """Whether further micro-batches belong to the present step."""
        return self._part is not None and not self._part.last

    def start(self) -> Position:
        """Become a member now, before the loop, with the state that the members or a checkpoint have.

        Returns the position from which the loop will go on. The loop does it otherwise, and so does asking
        for `position`, `rank`, `size` or `generation`. Members stand still from here until the loop begins:
        do what takes time before. (Large weights reach a newcomer in the course of the loop's first steps.)

        Raises:
            SystemExit: this process is to leave. Its code is 0.
        """
        if self._life == "outside":
            self._enter()
        return self._state.position

    def _enter(self) -> None:
        self._life = "inside"
        for told in forgotten(self._state.parts):  # before anybody waits for this node
            warned.warn(told)
        try:
            self._peers.enter()
        except Leave:
            self._peers.leave()
        self._entered_at = time.monotonic()

    def _is_late(self) -> None:
        """Say so if members have waited for this node between `start` and the loop."""
        waited_s = time.monotonic() - self._entered_at
        if waited_s > LATE_S and self._orders is not None:
            warned.note_warning(
                f"all nodes stood still for {waited_s:.0f} s: from run.start(), or where the script asked "
                "for run.rank or run.position, until the loop. Prepare what takes time before"
            )

    def stop(self) -> None:
        """End the run: on all nodes at once, after the next step at the latest. The work counts as done.

        One node's call suffices; so early stopping needs no agreement of its own.
        """
        self._peers.stop()

    def report(self, metrics: Mapping[str, float] | None = None, /, **more: float) -> None:
        """Report figures such as accuracy; the last of each name is what `bftrainer show` shows.

        They are stored with the step and the samples reached now. Only rank 0's count.
        """
        self._peers.report(figures(metrics, more), now=True)

    def after_step(self, hook: Hook) -> Hook:
        """Have `hook()` called after every step that is taken, on every node that has the state.

        So it is called as often on every node: also on a node for which a step had no samples, and whose
        loop's body did not run. Use it for what follows the weights, such as an average of them. It may be
        used as a decorator.
        """
        self._hooks.append(hook)
        return hook

    def after_epoch(self, hook: Hook) -> Hook:
        """Have `hook()` called after every step that ends an epoch, as `after_step` does."""
        self._epoch_hooks.append(hook)
        return hook

    def _after_step(self, *, epoch_over: bool) -> None:
        if not self._peers.has_state:
            return
        self._own = self._own or OwnOptimizers(self._state.parts)
        self._own.stepped()
        self._in_hook = True
        for hook in (*self._hooks, *(self._epoch_hooks if epoch_over else ())):
            hook()
        self._in_hook = False


def figures(metrics: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    """What a script reports, as one mapping."""
    return {name: _number(value) for name, value in {**(metrics or {}), **more}.items()}


def _number(value: Any) -> float:
    """It may be a loss as it is, which has a gradient."""
    return float(value.detach() if isinstance(value, torch.Tensor) else value)
