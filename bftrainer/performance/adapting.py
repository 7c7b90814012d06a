"""Goodput of trainers whose batch adapts: from what their runs report and the times of their steps. Pure.

Pollux's model (`goodput`) is fitted to the times of steps with all batches so far: once for all trainers of
a program, or for one alone where others run another version of it. Where it is off, these times are followed
(`goodput_times`), and a trainer's own before all. With the trainer's noise it says which batch the run would
choose on each number of nodes, and what that is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np

from bftrainer.model.trainer import AdaptingBatch, Observations, Points
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import BatchLimits, GoodputError, GoodputModel, SystemModel
from bftrainer.performance.goodput_fit import IterationTime, fit
from bftrainer.performance.goodput_times import MeasuredSystem, measured, own_pace

MISFIT = math.log(2)
"""By such a factor times may be off from their model, by the root mean square of its logarithm. Beyond it
they are of different models, say, and nothing follows from them."""

OWN_MISFIT = math.log(1.3)
"""By such a factor a trainer's own times may be off from the model of all of its program. Beyond it others
run another version of it, say with another model, and their times say nothing of this one's."""

Times = tuple[tuple[int, int, int, float], ...]
"""Times of steps: nodes, workers, the batch of a worker, and the seconds of each of its passes."""


@lru_cache(maxsize=4096)
def times_of(seen: Observations, node_class: str | None) -> Times:
    """The times of steps on a class of nodes that a trainer has measured, or all of a program together."""
    known = sorted((*step[1:5], median(step[5].recent)) for step in seen.steps if step[0] == node_class)
    # all passes are taken to last as long
    return tuple((n, workers, batch, s / passes) for n, workers, batch, passes, s in known)


@lru_cache(maxsize=4096)
def system_of(times: Times) -> MeasuredSystem | None:
    """The model of these times, as it follows them; None: there are none, or no model fits them."""
    if not times:
        return None
    steps = [IterationTime(*step) for step in times]
    found = fit(steps)
    return measured(found, steps) if _rms(_off(times, found)) <= MISFIT else None


def _off(times: Times, system: SystemModel) -> Floats:
    """The logarithms by which times are off from a model."""
    *sizes, seconds = np.array(times).T
    return np.asarray(np.log(seconds / system.iteration_time(*sizes)))


def _rms(off: Floats) -> float:
    """The root mean square."""
    return math.sqrt(np.mean(off**2))


@dataclass(frozen=True, slots=True)
class VersionTimes:
    """The times by which a trainer counts: all of its program, brought to the speed of its `own`, or its own
    `alone`, as others of its program run another version of it."""

    times: Times
    own: Times = ()
    alone: bool = False


@lru_cache(maxsize=4096)
def version_of(every: Times, own: Times) -> VersionTimes:
    """The times by which a trainer counts, of all that its program and it itself have measured."""
    if not own or not every or own == every:
        return VersionTimes(every or own)
    return VersionTimes(every, own) if _tell_of(every, own) else VersionTimes(own, alone=True)


def _tell_of(every: Times, own: Times) -> bool:
    """Whether the model of all times, at a trainer's own speed, is near its own times."""
    system = system_of(every)
    if system is None:
        return False
    off = _off(own, system.fitted)
    return _rms(off - median(off.tolist())) <= OWN_MISFIT


@lru_cache(maxsize=4096)
def goodputs(batch: AdaptingBatch, version: VersionTimes, nodes: tuple[int, ...]) -> Points:
    """The goodput on each of `nodes` (ascending), with the batch that is best there; empty: not known.

    It is 0 where there are more workers than the largest batch has samples.
    """
    system = system_of(version.times)
    if system is None or batch.noise is None or not nodes:
        return ()
    limits = BatchLimits(initial=batch.initial, most=batch.most, local_most=batch.most_at_once)
    seen = max(workers for _, workers, *_ in (*version.times, *version.own))
    own = own_pace(system, np.array(version.own)) if version.own else None
    try:
        model = GoodputModel(system, limits, batch.noise, seen)
        n = np.array(nodes)
        found = model.best(n, n * batch.workers, own).goodput
    except GoodputError:
        return ()
    return tuple(zip(nodes, found.tolist(), strict=True)) if found[0] > 0 else ()
