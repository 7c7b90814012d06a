"""Whether the script changes weights before their step: if a node is lost in that step, the change stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from bftrainer.elastic import warned

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

    def __init__(self) -> None:
        self._left = TURNS
        self._seen: dict[int, torch.Tensor] = {}

    def begin(self, parameters: Iterable[torch.Tensor]) -> None:
        """A turn begins. Parameters of lazy modules have no weights yet."""
        self._seen.clear()
        if not self._left:
            return
        self._left -= 1
        there = [p for p in parameters if not isinstance(p, torch.nn.parameter.UninitializedParameter)]
        for p in there[:: len(there) // LOOKED_AT + 1]:
            self._seen[id(p)] = _some(p).clone()

    def stepped(self, parameters: Sequence[torch.Tensor]) -> None:
        """The run itself has changed these."""
        for p in parameters:
            if id(p) in self._seen:
                self._seen[id(p)] = _some(p).clone()

    def check(self, parameters: Sequence[torch.Tensor]) -> None:
        """The step of these is to be taken: warn, once, if the script has changed them."""
        if self._seen and any(
            (before := self._seen.get(id(p))) is not None and not torch.equal(before, _some(p))
            for p in parameters
        ):
            self._left = 0
            self._seen.clear()
            warned.warn(TOLD, stacklevel=3)


def _some(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().reshape(-1)[:LOOKED_AT]
