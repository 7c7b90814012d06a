"""Whether the script changes weights before their step: if a node is lost in that step, the change stays."""

from __future__ import annotations

import torch

from bftrainer.elastic import warned
from bftrainer.elastic.train.trained import Trained

TURNS = 3
"""In so many turns of the loop weights are looked at: a script that does it does so from the beginning."""
LOOKED_AT = 16
"""So many parameters, and as many elements of each."""
TOLD = (
    "the script changes weights in the loop's body before run.step(). Where a node is lost in that step, "
    "run.step() returns False and the batch comes again, and what the body has changed stays: undo it there "
    "(`if not run.step(): ...`), or change weights in a function given to run.after_step"
)


class OwnWeights:
    """Looks at a few weights when a turn of the loop begins, and again when its step is to be taken."""

    def __init__(self, trained: Trained) -> None:
        self._trained = trained
        self._left = TURNS
        self._seen: dict[int, torch.Tensor] = {}

    def begin(self) -> None:
        """A turn begins."""
        self._seen.clear()
        if not self._left:
            return
        self._left -= 1
        there = [p for name in self._trained.optimizers for p in self._trained.parameters(name)]
        for p in there[:: len(there) // LOOKED_AT + 1]:
            self._seen[id(p)] = some(p).clone()

    def stepped(self, name: str) -> None:
        """The run itself has stepped the optimiser of this name."""
        for p in self._trained.parameters(name) if self._seen else ():
            if id(p) in self._seen:
                self._seen[id(p)] = some(p).clone()

    def check(self, name: str) -> None:
        """This optimiser is to be stepped: warn, once, if the script has changed its weights."""
        if self._seen and any(
            (before := self._seen.get(id(p))) is not None and not torch.equal(before, some(p))
            for p in self._trained.parameters(name)
        ):
            self._left = 0
            self._seen.clear()
            warned.warn(TOLD, stacklevel=3)


def some(tensor: torch.Tensor) -> torch.Tensor:
    """A few elements of a tensor, which share its memory."""
    return tensor.detach().reshape(-1)[:LOOKED_AT]
