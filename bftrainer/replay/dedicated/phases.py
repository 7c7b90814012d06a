"""A measured program's training as phases: an epoch each, with the best batch that was measured."""

from __future__ import annotations

import numpy as np

from bftrainer.allocate.goodput.sizes import TrainingPhases
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import batches, gain, noise_scale
from bftrainer.replay.dedicated.programs import MOST_NODES, MeasuredProgram, Placement, ProfileError

Batch = tuple[int, int, float]
"""A worker's samples at a time, its accumulation steps, and the time (s) of an iteration with them."""


def phases_of(program: MeasuredProgram, gpus: int, most: int) -> TrainingPhases:
    """The program's epochs on one GPU, and on 1 to `most` nodes with `gpus` GPUs each.

    Raises:
        ProfileError: nothing was measured about so many nodes.
    """
    widest = program.limits.most // program.limits.local_least
    if most > MOST_NODES or most * gpus > widest:
        raise ProfileError(
            f"program {program.name}: {most} nodes of {gpus} GPUs; at most {MOST_NODES} nodes are known of, "
            f"and {widest:,} workers can share its largest batch; have fewer nodes (--max-nodes)"
        )
    sizes: list[Placement] = [(1,), *((gpus,) * nodes for nodes in range(1, most + 1))]
    times, samples = zip(*(_epochs(program, placement) for placement in sizes), strict=True)
    steps = np.diff([program.progress(epoch) for epoch in range(program.epochs + 1)])
    return TrainingPhases(
        gpus, steps * program.limits.initial, times[0], np.array(times[1:]), np.array(samples[1:])
    )


def _epochs(program: MeasuredProgram, placement: Placement) -> tuple[Floats, Floats]:
    """The time (s) of each epoch with its best batch, and the samples processed; each of shape (epochs,)."""
    options, initial = _batches(program, placement), program.limits.initial
    times, samples = [], []
    for epoch in range(program.epochs):
        steps = program.progress(epoch + 1) - program.progress(epoch)
        found = []
        for local, accumulation, iteration_s in options:
            total = sum(placement) * local * (accumulation + 1)
            phi = noise_scale(initial, *program.gradients(total, epoch))
            iterations = steps / float(gain(phi, initial, total))
            found.append((iterations * iteration_s, iterations * total))
        best = min(found)
        times.append(best[0])
        samples.append(best[1])
    return np.array(times), np.array(samples)


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
        raise hole or ProfileError(f"program {program.name}: no batch suits workers placed {placement}")
    return found
