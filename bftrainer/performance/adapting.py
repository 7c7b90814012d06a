"""Goodput of trainers whose batch adapts: from what their runs report and the times of their steps. Pure.

Pollux's model (`goodput`) is fitted to the times of steps with all batches so far, of the trainer and of
others of its program; of the trainer alone where others run another version of it. Where it is off, these
times are followed (`goodput_times`). With the trainer's noise it says which batch the run would choose on
each number of nodes, and what that is worth.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median

import numpy as np

from bftrainer.model.trainer import AdaptingBatch, Observations, Points
from bftrainer.performance.goodput import BatchLimits, GoodputError, GoodputModel, SystemModel
from bftrainer.performance.goodput_fit import IterationTime, fit
from bftrainer.performance.goodput_times import MeasuredSystem, measured
from bftrainer.performance.observe import Kind

MISFIT = math.log(2)
"""By such a factor times may be off from their model, by the root mean square of its logarithm. Beyond it
they are of different models, say, and nothing follows from them."""

OWN_MISFIT = math.log(1.3)
"""By such a factor a trainer's own times may be off from the model of all of its program. Beyond it others
run another version of it, say with another model, and their times say nothing of this one's."""

NOTHING = Observations()
Times = tuple[IterationTime, ...]


def times_of(program: Observations, own: Observations, node_class: str | None) -> Times:
    """The times of steps on a class of nodes: a trainer's own, and of others of its program those that it has
    not measured. These are brought to its own speed, by the kinds of steps that both have."""
    shared, mine = _medians(program, node_class), _medians(own, node_class)
    off = [mine[kind] / shared[kind] for kind in mine.keys() & shared.keys()]
    factor = median(off) if off else 1.0
    times = {**{kind: factor * seconds for kind, seconds in shared.items()}, **mine}
    return tuple(
        IterationTime(n, workers, batch, seconds / passes)  # all passes are taken to last as long
        for (_, n, workers, batch, passes), seconds in sorted(times.items(), key=lambda item: item[0][1:])
    )


def _medians(seen: Observations, node_class: str | None) -> dict[Kind, float]:
    return {step[:5]: median(step[5].recent) for step in seen.steps if step[0] == node_class}


@lru_cache(maxsize=1024)
def system_of(times: Times) -> SystemModel | None:
    """The model of these times; None: there are none, or no model fits them."""
    if not times:
        return None
    found = fit(times)
    return found if _off(times, found) <= MISFIT else None


@lru_cache(maxsize=1024)
def _followed(times: Times) -> MeasuredSystem | None:
    """The same, as it follows these times."""
    system = system_of(times)
    return None if system is None else measured(system, times)


def _off(times: Times, system: SystemModel) -> float:
    """The root mean square of the logarithms by which times are off from a model."""
    columns = np.array([(t.nodes, t.workers, t.batch, t.iteration_s) for t in times]).T
    off = np.log(system.iteration_time(*columns[:3]) / columns[3])
    return math.sqrt(float(np.mean(off**2)))


def of_one_version(program: Observations, own: Observations, node_class: str | None) -> tuple[Times, bool]:
    """The times by which a trainer counts, and whether these are its own alone, as others of its program run
    another version of it."""
    every, mine = (times_of(seen, own, node_class) for seen in (program, NOTHING))
    alone = bool(mine) and mine != every and not _tell_of(every, mine)
    return (mine if alone else every), alone


@lru_cache(maxsize=4096)
def _tell_of(every: Times, own: Times) -> bool:
    """Whether the model of all times is near a trainer's own."""
    system = system_of(every)
    return system is not None and _off(own, system) <= OWN_MISFIT


@lru_cache(maxsize=4096)
def goodputs(batch: AdaptingBatch, times: Times, nodes: tuple[int, ...]) -> Points:
    """The goodput on each of `nodes` (ascending), with the batch that is best there; empty: not known.

    It is 0 where there are more workers than the largest batch has samples.
    """
    system = _followed(times)
    if system is None or batch.noise is None or not nodes:
        return ()
    limits = BatchLimits(initial=batch.initial, most=batch.most, local_most=batch.most_at_once)
    seen = max(t.workers for t in times)
    try:
        model = GoodputModel(system, limits, batch.noise, seen)
        n = np.array(nodes)
        found = model.best(n, n * batch.workers).goodput
    except GoodputError:
        return ()
    return tuple(zip(nodes, found.tolist(), strict=True)) if found[0] > 0 else ()
