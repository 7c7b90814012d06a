"""A measured program's training as phases: an epoch each, with the best batch that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bftrainer.allocate.goodput.sizes import TrainingPhases
from bftrainer.messages.files.replays import BEYOND_MEASURED
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import batches, gain, noise_scale, split
from bftrainer.replay.dedicated.programs import MOST_NODES, MeasuredProgram, Placement, ProfileError

Batch = tuple[int, int, float]
"""A worker's samples at a time, its accumulation steps, and the time (s) of an iteration with them."""


@dataclass(frozen=True, eq=False)
class TrainingCourse:
    """A training of P phases on each of 1 to N nodes, and what its run tells of its batch there.

    `batches`: a worker's samples at a time and its accumulation steps, shape (N, P, 2). `noise`: the gradient
    noise scale (samples), shape (N, P). `workers`: on each node. `adapts`: the run chooses its batch.
    """

    program: MeasuredProgram
    phases: TrainingPhases
    batches: npt.NDArray[np.int64]
    noise: Floats
    workers: int
    adapts: bool = True


@dataclass(frozen=True, eq=False)
class _Epochs:
    """One placement of workers, by epoch: time (s), samples, the batch of a worker, and the noise."""

    times: Floats
    samples: Floats
    batches: npt.NDArray[np.int64]
    noise: Floats


def phases_of(program: MeasuredProgram, gpus: int, most: int) -> TrainingPhases:
    """The program's epochs on one GPU, and on 1 to `most` nodes with `gpus` GPUs each.

    Raises:
        ProfileError: nothing was measured about this number of nodes.
    """
    return course_of(program, gpus, most).phases


def course_of(program: MeasuredProgram, gpus: int, most: int) -> TrainingCourse:
    """The program's training on 1 to `most` nodes with `gpus` GPUs each.

    Raises:
        ProfileError: nothing was measured about this number of nodes.
    """
    widest = widest_of(program, 1)
    if most > MOST_NODES or most * gpus > widest:
        what = (
            f"{most} nodes of {gpus} GPUs: at most {MOST_NODES} nodes are known of, and {widest:,} workers "
            "can share its largest batch"
        )
        raise ProfileError(BEYOND_MEASURED.say(name=program.name, what=what))
    sizes: list[Placement] = [(1,), *((gpus,) * nodes for nodes in range(1, most + 1))]
    alone, *others = (_epochs(program, placement, _batches(program, placement)) for placement in sizes)
    return _course(program, gpus, alone.times, others)


def fixed_course_of(program: MeasuredProgram, batch: int) -> TrainingCourse:
    """The program's training by one worker on one node, whose batch does not change.

    Raises:
        ProfileError: nothing was measured about that batch.
    """
    local, steps = (int(found) for found in split(program.limits, 1, batch))
    step, sync = program.times((1,), local)
    only = _epochs(program, (1,), [(local, steps, step + steps * (step - sync))])
    return _course(program, 1, only.times, [only], adapts=False)


def widest_of(program: MeasuredProgram, gpus: int) -> int:
    """Number of nodes of `gpus` GPUs that can share the program's largest batch."""
    return program.limits.most // program.limits.local_least // gpus


def _course(
    program: MeasuredProgram, gpus: int, alone_s: Floats, on: Sequence[_Epochs], *, adapts: bool = True
) -> TrainingCourse:
    steps = np.diff([program.progress(epoch) for epoch in range(program.epochs + 1)])
    times, samples = (np.array([getattr(found, name) for found in on]) for name in ("times", "samples"))
    phases = TrainingPhases(gpus, steps * program.limits.initial, alone_s, times, samples)
    chosen, noise = (np.array([getattr(found, name) for found in on]) for name in ("batches", "noise"))
    return TrainingCourse(program, phases, chosen, noise, gpus, adapts)


def _epochs(program: MeasuredProgram, placement: Placement, options: Sequence[Batch]) -> _Epochs:
    """The epochs of workers placed so, with the best of some batches."""
    initial, workers = program.limits.initial, sum(placement)
    every = []
    for epoch in range(program.epochs):
        steps = program.progress(epoch + 1) - program.progress(epoch)
        found = []
        for local, accumulation, iteration_s in options:
            total = workers * local * (accumulation + 1)
            phi = noise_scale(initial, *program.gradients(total, epoch))
            iterations = steps / float(gain(phi, initial, total))
            found.append((iterations * iteration_s, iterations * total, (local, accumulation), phi))
        every.append(min(found))
    times, samples, chosen, noise = zip(*every, strict=True)
    return _Epochs(np.array(times), np.array(samples), np.array(chosen), np.array(noise))


def _batches(program: MeasuredProgram, placement: Placement) -> list[Batch]:
    """The batches of workers placed so whose times are known.

    Raises:
        ProfileError: none is.
    """
    local, accumulation, possible = batches(program.limits, sum(placement))
    pairs = np.unique(np.stack([local[possible], accumulation[possible]], axis=1), axis=0)
    found, hole = [], None
    for size, steps in pairs.tolist():
        try:
            step, sync = program.times(placement, size)
        except ProfileError as error:
            hole = error
        else:
            found.append((size, steps, step + steps * (step - sync)))
    if not found:
        raise hole or ProfileError(
            BEYOND_MEASURED.say(name=program.name, what=f"a batch that suits workers placed {placement}")
        )
    return found
