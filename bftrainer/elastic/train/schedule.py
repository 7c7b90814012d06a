"""Learning-rate schedulers: stepped after every step or every epoch, and a warning where that seems wrong."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from bftrainer.elastic.process import warnings
from bftrainer.messages.arguments import (
    NO_SCHEDULER,
    SCHEDULER_COUNTS_EPOCHS,
    SCHEDULER_COUNTS_STEPS,
    SCHEDULER_CUT_SHORT,
    SCHEDULER_EVERY,
    SCHEDULER_NEEDS,
)

Every = Literal["step", "epoch"]

MUCH = 3
"""Ratio of a scheduler's own length to the run's, or the reverse, at which it counts something else."""
NOTHING = 1e-6
"""A factor on the learning rate at which nothing is learnt any more."""


class Schedule:
    """The schedulers of a run, by their optimisers' names.

    Args:
        every: how often they are stepped; None: after every step, with a warning where an epoch is likely.

    Raises:
        TypeError: a scheduler whose `step` needs an argument, with what to do instead.
        ValueError: `every` is neither.
    """

    def __init__(self, schedulers: Mapping[str, Any], every: Every | None) -> None:
        if every not in (None, "step", "epoch"):
            raise ValueError(SCHEDULER_EVERY.say(every=every))
        for scheduler in schedulers.values():
            _check_call(scheduler)
        self._schedulers, self._every = schedulers, every

    def advance(self, stepped: Collection[str], *, epoch_over: bool, worth: int = 1) -> None:
        """A step is complete, in which these optimisers were stepped, and which counts as `worth` steps;
        perhaps an epoch's last."""
        for name, scheduler in self._schedulers.items():
            per_step = worth if name in stepped else 0
            for _ in range(int(epoch_over) if self._every == "epoch" else per_step):
                scheduler.step()

    def compare(self, epochs: float | None, steps: float | None, fewest: float | None) -> None:
        """Warn if a scheduler's own course fits a run of these epochs and steps only if it is stepped
        otherwise, or if it ends too early on as many nodes as are allowed, where the run has the `fewest`."""
        if epochs is None or steps is None or fewest is None:
            return
        for name, scheduler in self._schedulers.items():
            of = f" of {name}" if len(self._schedulers) > 1 else ""
            called = f"{type(scheduler).__name__}{of}"
            told = self._doubt(called, scheduler, epochs, steps)
            if told := told or self._cut_short(called, scheduler, steps, fewest):
                warnings.warn(told)

    def _cut_short(self, called: str, scheduler: Any, steps: float, fewest: float) -> str:
        course = max(_courses(scheduler), default=0)
        if self._every == "epoch" or fewest >= steps or not fewest < course <= steps + 1:
            return ""
        return SCHEDULER_CUT_SHORT.say(scheduler=called, course=course, steps=steps, fewest=fewest)

    def _doubt(self, called: str, scheduler: Any, epochs: float, steps: float) -> str:
        course = max(_courses(scheduler), default=None)
        if self._every == "epoch":
            if course is None or course <= MUCH * epochs or course * MUCH < steps:
                return ""  # as where a study's rung, or its budget, ends the run before the course
            return SCHEDULER_COUNTS_STEPS.say(scheduler=called, course=course, epochs=epochs)
        if self._every == "step" or steps < MUCH * epochs:
            return ""
        if course is not None and course <= 2 * epochs:
            has_period = isinstance(getattr(scheduler, "step_size", None), int)
            ends = f"has {'a period of' if has_period else 'done its course after'} {course} steps"
        elif _decay(scheduler) ** steps < NOTHING:
            ends = f"makes the learning rate less than {NOTHING:g} times as large"
        else:
            return ""
        return SCHEDULER_COUNTS_EPOCHS.say(scheduler=called, ends=ends, steps=steps, epochs=epochs)


def _check_call(scheduler: Any) -> None:
    step = getattr(scheduler, "step", None)
    if step is None:
        raise TypeError(NO_SCHEDULER.say(scheduler=type(scheduler).__name__))
    needed = [
        name
        for name, parameter in inspect.signature(step).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if needed:
        raise TypeError(SCHEDULER_NEEDS.say(scheduler=type(scheduler).__name__, needed=needed[0]))


def _courses(scheduler: Any) -> Iterator[int]:
    """After how many steps a scheduler has done what it is for, or done it once, as far as it says. One made
    of others has no end where one of them has none."""
    inner = getattr(scheduler, "_schedulers", None) or ()
    if any(next(_courses(one), None) is None for one in inner):
        return
    for name in ("total_steps", "T_max", "total_iters", "step_size", "T_0"):
        value = getattr(scheduler, name, None)
        if isinstance(value, int):
            yield value
    for name in ("milestones", "_milestones"):
        yield from (int(at) for at in getattr(scheduler, name, None) or ())
    for one in inner:
        yield from _courses(one)


def _decay(scheduler: Any) -> float:
    """Factor of ExponentialLR on the learning rate at every step; 1 for others."""
    gamma = getattr(scheduler, "gamma", 1.0)
    return gamma if type(scheduler).__name__ == "ExponentialLR" and isinstance(gamma, float) else 1.0
