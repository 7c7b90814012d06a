"""What a script may ask of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from bftrainer.elastic.peers import SingleProcess
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import Position
from bftrainer.elastic.train.turn import Turn

Hook = TypeVar("Hook", bound=Callable[[], object])


class RunView:
    """The part of a `Run` that changes nothing in it: where it stands, its reports, its hooks."""

    def __init__(self, averaging: Averaging, state: TrainingState, peers: SingleProcess) -> None:
        self._averaging, self._state, self._peers = averaging, state, peers
        self._hooks: list[Callable[[], object]] = []
        self._turn: Turn | None = None  # the step that is under way
        self._part: MicroBatch | None = None  # that the script works on

    @property
    def model(self) -> torch.nn.Module:
        """What to call in the forward pass: the model, with `ddp` wrapped; of several, `run.model["G"]`."""
        return self._averaging.model

    @property
    def rank(self) -> int:
        """This node's number, from 0, among those that share the samples right now."""
        place = self._peers.place
        return self._peers.group.rank if place is None else place

    @property
    def size(self) -> int:
        """The number of nodes that share the samples right now."""
        return self._peers.size

    @property
    def generation(self) -> int:
        """The number of the present membership; it grows with every change. 0 if started by hand."""
        return self._peers.group.generation

    @property
    def position(self) -> Position:
        """Step, samples, epoch and place in it, all counted over all nodes."""
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

    def _after_step(self) -> None:
        if self._peers.has_state:
            for hook in self._hooks:
                hook()


def figures(metrics: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    """What a script reports, as one mapping."""
    return {name: float(value) for name, value in {**(metrics or {}), **more}.items()}
