"""Refuses steps of the script that the run takes, too: they would be taken twice, or on one node only."""

from __future__ import annotations

from typing import Any

import torch

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import ONE, Trained
from bftrainer.messages.loop import OPTIMIZER_TWICE, SCHEDULER_TWICE


class DoubleSteps(StepObserver):
    """Finds steps of the run's optimisers and schedulers that are not its own, during a turn of the loop.

    Before and after the loop, the script may step them: no other node is concerned then.
    """

    def __init__(self, trained: Trained) -> None:
        self._schedulers = trained.schedulers
        self._is_turn = self._is_own = False
        self._counts: list[Any] = []
        for name, optimizer in trained.optimizers.items():
            called = "run.step()" if name == ONE or not trained.is_several else f'run.step("{name}")'
            optimizer.register_step_pre_hook(self._refusal(called))

    def step_begins(self, share: RankShare) -> None:
        self._counts = self._counted()
        self._is_turn, self._is_own = True, False

    def before_update(self, optimizer: str) -> None:
        self._check_schedulers()
        self._is_own = True

    def after_update(self, optimizer: str) -> None:
        self._is_own = False

    def before_schedule(self) -> None:
        self._check_schedulers()

    def step_taken(self, *, has_state: bool) -> None:
        self._counts = self._counted()

    def step_ends(self, *, is_whole: bool) -> None:
        if is_whole:
            self._check_schedulers()
        self._is_turn = False

    def _refusal(self, called: str) -> Any:
        def check(optimizer: torch.optim.Optimizer, *_: object) -> None:
            if self._is_turn and not self._is_own:
                raise RuntimeError(OPTIMIZER_TWICE.say(optimizer=type(optimizer).__name__, call=called))

        return check

    def _counted(self) -> list[Any]:
        return [getattr(scheduler, "last_epoch", None) for scheduler in self._schedulers.values()]

    def _check_schedulers(self) -> None:
        if not self._is_turn:
            return
        for scheduler, before, now in zip(
            self._schedulers.values(), self._counts, self._counted(), strict=True
        ):
            if before != now:
                raise RuntimeError(SCHEDULER_TWICE.say(scheduler=type(scheduler).__name__))
