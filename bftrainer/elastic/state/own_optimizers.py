"""What optimisers of a script's own keep where no checkpoint has it, and no node that joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bftrainer.elastic.own_objects import by_name, of_optimizers
from bftrainer.elastic.own_state import tell_of_lost
from bftrainer.elastic.warned import note_warning

AFTER = frozenset({2, 8, 64, 512, 4096})
"""After so many steps of a process it is looked at: the slow weights of some change once in many steps."""
REMEDY = (
    "keep it in the optimizer's `state` of each parameter, or have state_dict and load_state_dict carry it"
)


class OwnOptimizers:
    """Follows optimisers of classes that neither PyTorch nor the run has.

    Args:
        parts: of the training state, by name.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        given = {name: part for name, part in parts.items() if isinstance(part, torch.optim.Optimizer)}
        self._all = list(given.values())
        names = {id(part): name.partition(".")[2] or name for name, part in given.items()}
        self._states = by_name(of_optimizers(self._all), names)
        self._steps = 0
        self._told = False

    def stepped(self) -> None:
        """A step has been taken: tell, at times, what a process that begins would lack."""
        self._steps += 1
        if self._steps not in AFTER:
            return
        tell_of_lost(self._states, REMEDY)
        for optimizer in () if self._told else self._all:
            stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
            strange = [key for key in optimizer.state if id(key) not in stepped]
            if strange:
                self._told = True
                note_warning(
                    f"{type(optimizer).__name__} keeps {len(strange)} entries of its state under keys that "
                    "are no parameters of it: in another process they belong to nothing, and it begins "
                    "anew there. Keep them in state[p] of each parameter p"
                )
