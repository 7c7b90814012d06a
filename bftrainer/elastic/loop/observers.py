"""The interface of what watches a run's steps, such as checks: the loop calls all observers, and knows none.

`elastic/checks/of_run.py` lists the checks of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.training_state import Stateful, TrainingState
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import RankShare

NOTHING = 1 << 62
"""Above every digest: from a rank that does not take part."""


class TrainerFails(RuntimeError):  # noqa: N818  a state of the training
    """Raised by an observer where another start of the trainer would be as wrong: the trainer fails."""


class ReplicasDiffer(TrainerFails):
    """The nodes do not have the same state any more: what comes out of the training would be wrong."""


class StepObserver:
    """Watches a run without changing it. Every member calls all methods, about in the order of this class.

    An observer has those that it needs; the others do nothing. Each may warn, or raise RuntimeError where the
    script is wrong. Gradients stand in the parameters' `grad`: a node's own before they are averaged, and
    those of the whole step from `before_update` on.
    """

    def parts(self) -> Mapping[str, Stateful]:
        """Its parts of the training state, by names that no part of a script can have: members that join and
        checkpoints get them."""
        return {}

    def enters(self, state: TrainingState) -> None:
        """The process is about to become a member. `state` is the live one; its position follows the run."""

    def members_changed(self, size: int) -> None:
        """`size` ranks share the samples from the present position on; called before the first step, too."""

    def loop_begins(self) -> None:
        """The script begins to iterate over its run."""

    def step_begins(self, share: RankShare) -> None:
        """A step begins, in which this rank has `share` of the samples; gradients are cleared."""

    def before_compute(self) -> None:
        """The script is about to compute: with a micro-batch that is there, or after one of several
        optimisers was stepped."""

    def before_backward(self, optimizer: str, part: MicroBatch, loss: torch.Tensor) -> None:
        """The script calls `run.backward` with the loss of a micro-batch, for an optimiser's parameters."""

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        """The script calls `run.step` for an optimiser after a micro-batch. Gradients are this rank's own, of
        the micro-batches so far; with `ddp` they are averaged after the last one."""

    def before_update(self, optimizer: str) -> None:
        """Gradients are averaged, and scaled yet if the run has a scaler: the run steps the optimiser now."""

    def after_update(self, optimizer: str) -> None:
        """The run has stepped the optimiser. Gradients are still there."""

    def digest(self, *, is_over: bool) -> int | None:
        """A number below 2**62 that is the same on all ranks, unless they have gone apart; None: not now, on
        any rank. It rides on a message that members exchange before each update. `is_over`: the work is."""
        return None

    def differs(self, group: Group, working: Sequence[int]) -> None:
        """The digests of the group's `working` ranks differ: all ranks of the group find out why.

        Raises:
            TrainerFails: on all ranks, where the difference matters.
            GroupBroken: a member was lost meanwhile.
        """

    def before_schedule(self) -> None:
        """All optimisers of the step have been stepped: the run steps its schedulers now."""

    def step_taken(self, *, has_state: bool) -> None:
        """The step is taken, and the script's hooks come next. `has_state`: False on a rank that follows the
        members' steps while its state is yet to arrive."""

    def step_ends(self, *, is_whole: bool) -> None:
        """The step was taken, or lost with a member. `is_whole`: False where the script has left its loop."""

    def work_ends(self) -> None:
        """No step is left to take."""

    def loop_ends(self) -> None:
        """The script's loop is over, in whatever way."""


EVENTS = frozenset(name for name in vars(StepObserver) if not name.startswith("_"))


class Observers(StepObserver):
    """Several observers as one. Only those are called that have a method of their own."""

    def __init__(self, observers: Sequence[StepObserver] = ()) -> None:
        self._observers = observers
        self._comparing = [each for each in observers if type(each).digest is not StepObserver.digest]
        for event in sorted(EVENTS - {"parts", "digest", "differs"}):
            own = getattr(StepObserver, event)
            calls = [getattr(each, event) for each in observers if getattr(type(each), event) is not own]
            if calls:
                setattr(self, event, _each_of(calls))

    def parts(self) -> Mapping[str, Stateful]:
        return {name: part for each in self._observers for name, part in each.parts().items()}

    def digests(self, *, takes_part: bool = True, is_over: bool = False) -> list[int]:
        """For an exchange: each digest and its negative, so that the minimum over ranks tells the lowest and
        the highest. `takes_part`: False on a rank that has no state yet."""
        found = [each.digest(is_over=is_over) if takes_part else None for each in self._comparing]
        return [part for d in found for part in ((NOTHING, NOTHING) if d is None else (d, -d))]

    def compare(self, lowest: Sequence[int], group: Group, working: Sequence[int]) -> None:
        """Take in the minimum of all ranks' `digests`.

        Raises:
            TrainerFails, GroupBroken: as `StepObserver.differs`.
        """
        for each, low, high in zip(self._comparing, lowest[::2], lowest[1::2], strict=True):
            if low not in (NOTHING, -high):
                each.differs(group, working)


def _each_of(calls: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """One call for several: a step is short, and has many events."""
    if len(calls) == 1:
        return calls[0]

    def tell(*about: Any, **more: Any) -> None:
        for call in calls:
            call(*about, **more)

    return tell
