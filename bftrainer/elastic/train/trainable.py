"""The parameters that are trained: a script may freeze and unfreeze layers meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bftrainer.elastic.process.warnings import note

PART = "trainable parameters"
"""The name of its part of the training state; no part of a script can have it."""


class Trainable:
    """The parameters that are trainable, and those that ever were; a part of the training state.

    All ranks exchange the gradients of the latter, so that all exchange the same ones, also where a script
    freezes some for a part of each step. Newcomers and restarts of the trainer get both from the state.

    Args:
        models: by name.
        trainer: its number; another trainer that goes on from the checkpoints freezes what it wants to,
            unless its script begins with the same ones frozen.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module], trainer: int) -> None:
        self._trainer = trainer
        found: dict[int, tuple[str, torch.Tensor]] = {}  # tied ones once
        for model_name, model in models.items():
            for name, p in model.named_parameters():
                found.setdefault(id(p), (f"{model_name}.{name}", p))
        self._all = [*found.values()]
        self._ever: set[str] = set()
        self._never = self._all  # of these
        self._began = self._frozen()
        self.renew()

    def renew(self) -> None:
        """All ranks have run the same script up to here: take in what it has unfrozen."""
        if found := {name for name, p in self._never if p.requires_grad}:
            self._ever |= found
            self._never = [(name, p) for name, p in self._all if name not in self._ever]

    def averaged(self) -> list[torch.Tensor]:
        """The parameters that ever were trainable, in the same order on all ranks."""
        return [*self.named().values()]

    def named(self) -> dict[str, torch.Tensor]:
        """Like `averaged`, by the name of the model, a dot and the parameter's name."""
        return {name: p for name, p in self._all if name in self._ever}

    def unknown(self) -> list[torch.Tensor]:
        """The parameters that are trainable, and were not when all ranks had last run the same script."""
        return [p for name, p in self._all if p.requires_grad and name not in self._ever]

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state."""
        frozen = self._frozen()
        about = {"trainer": str(self._trainer), "count": len(frozen)}  # a number, as nodes compare numbers
        return {**about, "began": self._began, "frozen": frozen, "averaged": sorted(self._ever)}

    def _frozen(self) -> list[str]:
        return [name for name, p in self._all if not p.requires_grad]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Freeze and unfreeze as the members, or the trainer before its restart, have done."""
        if state_dict["trainer"] != str(self._trainer) and state_dict.get("began") != self._began:
            return
        self._began = state_dict.get("began", self._began)
        self._ever, self._never = {*state_dict["averaged"]}, self._all
        frozen = {*state_dict["frozen"]}
        for name, p in self._all:
            if p.requires_grad is (name in frozen):
                p.requires_grad_(name not in frozen)
        if (of := state_dict["trainer"]) != str(self._trainer) and state_dict["frozen"] != self._began:
            count = f"{len(frozen)} of {len(self._all)}"
            note(f"{count} parameters are frozen, as trainer {of} had them in the end")
