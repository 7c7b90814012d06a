"""Compares the weights of all ranks of a framework's training on torchrun.

Gradients that are not averaged over the ranks raise no error: each rank trains for itself, and what rank 0
has counts as the result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed as dist

from bftrainer.elastic.attach.collectives import exchanged, highest
from bftrainer.elastic.checks import replicas
from bftrainer.elastic.checks.comparison import difference
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.elastic.state.leaves import Sample, leaves_of, sample
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.ranks import BUFFER_APART

EVERY = 100
SOON = (1, 2, 10, 30)
"""Steps of a process after which they are compared as well: faults show at once."""
MODEL = "model"


class SameWeights:
    """Compares a few elements of each weight and buffer between the ranks, now and then.

    Statistics of normalisation layers are left out: they are each rank's own.

    Args:
        apart: message on weights that differ, with how this framework averages gradients.
    """

    def __init__(self, apart: Diagnostic) -> None:
        replicas.end()
        self._apart = apart
        self._steps = 0
        self._told = False

    def after_step(self, model: torch.nn.Module) -> None:
        """All ranks must call it after every step of a model that each rank has in full.

        Raises:
            RefusedError: weights differ: which one, its values, and what to do.
        """
        self._steps += 1
        if self._steps in SOON or not self._steps % EVERY:
            self.compare(model)

    def compare(self, model: torch.nn.Module) -> None:
        """Like `after_step`, but now."""
        weights, buffers = _samples(model)
        own = [weights.digest(), buffers.digest()]
        found = highest([*own, *(-digest for digest in own)])
        if found[0] != -found[2]:
            self._refuse(weights)
        if found[1] != -found[3] and not self._told:
            self._tell(buffers)

    def _refuse(self, mine: Sample) -> None:
        said = _apart(mine)
        if said:
            raise RefusedError(self._apart.say(difference=said))

    def _tell(self, mine: Sample) -> None:
        said = _apart(mine)
        if not said:
            return
        self._told = True
        if dist.get_rank() == 0:
            note_warning(BUFFER_APART.say(difference=said))


def _samples(model: torch.nn.Module) -> tuple[Sample, Sample]:
    """Samples of the weights, and of the buffers."""
    weights = {f"{MODEL}.{name}" for name, _ in model.named_parameters()}
    leaves = list(leaves_of({MODEL: model}))
    return (
        sample(leaf for leaf in leaves if leaf.name in weights),
        sample(leaf for leaf in leaves if leaf.name not in weights),
    )


def _apart(mine: Sample) -> str:
    """Entry in which another rank differs most from rank 0; empty if it is rounding. The same on all ranks,
    which all must call it."""
    first, *others = map(_sample_of, exchanged([mine.names, mine.sizes, mine.allowed, mine.values.tolist()]))
    for rank, theirs in enumerate(others, start=1):
        found = difference(first, theirs)
        if found is not None:
            more = f", and {found.count - 1} more entries differ" if found.count > 1 else ""
            name = found.name.removeprefix(f"{MODEL}.")
            return f"{name} is {found.theirs:.9g} on rank 0, {found.mine:.9g} on rank {rank}{more}"
    return ""


def _sample_of(said: Any) -> Sample:
    """The sample in a rank's message."""
    names, sizes, allowed, values = said
    return Sample(tuple(names), tuple(sizes), tuple(allowed), torch.tensor(values, dtype=torch.float64))
