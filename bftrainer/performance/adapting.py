"""Goodput of trainers whose batch adapts: from what their runs report and the times of their steps. Pure.

Pollux's model (`goodput`) is fitted to the times of steps with all batches so far: once for all trainers of
a program, or for one alone where others run another version of it. Where it is off, these times are followed
(`goodput_times`), and a trainer's own before all. With the trainer's noise it says which batch the run would
choose on each number of nodes, and what that is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np

from bftrainer.model.trainer import AdaptingBatch, Observations, Points
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import BatchLimits, GoodputError, GoodputModel, SystemModel, efficiency
from bftrainer.performance.goodput_fit import IterationTime, fit
from bftrainer.performance.goodput_times import MeasuredSystem, OwnPaces, measured

MISFIT = math.log(2)
"""Factor by which times may be off from their model, by the root mean square of its logarithm. Beyond it
they are of different models, say, and nothing follows from them."""

OWN_MISFIT = math.log(1.3)
"""Factor by which a trainer's own times may be off from the model of all of its program. Beyond it others
run another version of it, say with another model, and their times say nothing of this one's."""

AT_ONCE = 32
"""Trainers of a program to look at together: their tables are in a processor's cache."""

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
    """True if the model of all times, at a trainer's own speed, is near its own times."""
    system = system_of(every)
    if system is None:
        return False
    off = _off(own, system.fitted)
    return _rms(off - median(off.tolist())) <= OWN_MISFIT


@dataclass(frozen=True, slots=True)
class AskedGoodput:
    """A trainer with a batch that adapts, and the numbers of nodes (ascending) that are asked about."""

    batch: AdaptingBatch
    version: VersionTimes
    nodes: tuple[int, ...]


def goodputs(asked: Sequence[AskedGoodput]) -> list[Points]:
    """The goodput of each trainer on each of its nodes, with the batch that is best there; empty: not known.

    It is 0 where there are more workers than the largest batch has samples. Trainers of one program are
    looked at together, as thousands may be.
    """
    found: list[Points] = [()] * len(asked)
    alike: dict[object, list[int]] = {}
    for i, one in enumerate(asked):
        own = one.batch
        if one.nodes and own.noise is not None:
            limits = own.initial, own.most, own.most_at_once, own.workers
            alike.setdefault((one.version.times, _most_seen(one.version), limits), []).append(i)
    for those in alike.values():
        for begin in range(0, len(those), AT_ONCE):
            some = those[begin : begin + AT_ONCE]
            for i, points in zip(some, _together([asked[i] for i in some]), strict=True):
                found[i] = points
    return found


def _most_seen(version: VersionTimes) -> int:
    """The most workers with which one of these steps was measured."""
    return max(_most_workers(version.times), _most_workers(version.own))


@lru_cache(maxsize=4096)
def _most_workers(times: Times) -> int:
    return max((workers for _, workers, *_ in times), default=0)


def _together(asked: Sequence[AskedGoodput]) -> Iterator[Points]:
    """The goodputs of trainers that have times of their program, limits and workers in common."""
    batch, version = asked[0].batch, asked[0].version
    system, seen = system_of(version.times), _most_seen(version)
    sizes, column = np.unique(np.concatenate([one.nodes for one in asked]), return_inverse=True)
    try:
        if system is None:
            raise GoodputError("no model")
        limits = BatchLimits(initial=batch.initial, most=batch.most, local_most=batch.most_at_once)
        of = GoodputModel(system, limits, 0.0, seen).options(sizes, sizes * batch.workers)
    except GoodputError:
        yield from ((),) * len(asked)
        return
    which = np.repeat(np.arange(len(asked)), [len(one.nodes) for one in asked])
    nodes, speed = sizes[column], of.speed[:, column]
    if any(one.version.own for one in asked):
        workers = np.minimum(nodes * batch.workers, seen)
        paces = OwnPaces.of(system, [one.version.own for one in asked])
        speed = speed / paces.slower(which, nodes, workers, of.batch[:, column])
    noise = np.array([one.batch.noise for one in asked])[which]
    best = (speed * efficiency(noise, batch.initial, of.total[:, column])).max(axis=0).tolist()
    for one in asked:
        rates, best = best[: len(one.nodes)], best[len(one.nodes) :]
        yield tuple(zip(one.nodes, rates, strict=True)) if rates[0] > 0 else ()
