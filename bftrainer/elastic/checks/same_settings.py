"""Compares the nodes' settings of `elastic.Run` at every start: where they differ, nodes train apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bftrainer.elastic.loop.observers import ReplicasDiffer, StepObserver
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.state.training_state import Stateful
from bftrainer.elastic.train.policy import Policy
from bftrainer.messages.state import OTHER_SETTINGS

PART = "settings of the run"
"""The name of its part of the training state; no part of a script can have it."""


class SameSettings(StepObserver):
    """Settings by name, as texts: a part of the training state that compares itself.

    `trainer`: its number; another trainer that goes on from the checkpoints may have other settings, such as
    more epochs.
    """

    def __init__(self, settings: Mapping[str, str], trainer: int) -> None:
        self._settings, self._trainer = dict(settings), str(trainer)

    @classmethod
    def of(cls, orders: Orders | None, policy: Policy, settings: Mapping[str, object]) -> SameSettings:
        """These settings of a run, and the samples that a step takes."""
        n_max = orders.n_max or 1 if orders else 1
        steps = {f"samples of a step on {n} nodes": policy.total(n) for n in sorted({1, n_max})}
        texts = {name: repr(value) for name, value in {**settings, **steps}.items()}
        return cls(texts, orders.trainer if orders else 0)

    def parts(self) -> Mapping[str, Stateful]:
        return {PART: self}

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state."""
        return {"trainer": self._trainer, "settings": {**self._settings}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Compare with what the members, or the checkpoint, have.

        Raises:
            ReplicasDiffer: this process has other settings.
        """
        theirs: dict[str, str] = state_dict["settings"]
        different = [name for name, value in self._settings.items() if theirs.get(name, value) != value]
        if not different or state_dict["trainer"] != self._trainer:
            return
        told = ", ".join(f"{name} is {self._settings[name]} here, {theirs[name]} there" for name in different)
        raise ReplicasDiffer(OTHER_SETTINGS.say(difference=told))
