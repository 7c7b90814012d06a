"""Studies without a daemon: their trainers are made up, and end as a test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bftrainer.model.trainer import TrainerStatus
from bftrainer.search import events
from bftrainer.search.decide import step
from bftrainer.search.parse import parse
from bftrainer.search.sampling import Sampling
from bftrainer.search.study import StudySpec
from bftrainer.search.trial import Study

TEXT: dict[str, Any] = {
    "name": "s",
    "trainer": {"command": ["python", "t.py", "--lr", "{lr}"], "nodes": {"max": 4}},
    "space": {"lr": {"float": [0.001, 1.0], "log": True}},
    "metric": "loss",
    "trials": 8,
    "budget": 800,
}


def spec_of(**more: Any) -> StudySpec:
    """A study's spec: of TEXT with these keys instead."""
    return parse(yaml.safe_dump({**TEXT, **more}, sort_keys=False), "s.yaml", Path("/work"))


Score = Callable[[int, int], float]
"""Trial and samples -> the metric."""


class Run:
    """A study whose trainers reach their rung at once when `end` says so; `running` has those that run."""

    def __init__(self, spec: StudySpec, score: Score = lambda number, samples: float(number)) -> None:
        self.study = Study.new(1, spec, "ann", 0.0)
        self.sampling, self.score = Sampling(spec), score
        self.running: dict[int, int] = {}  # trial -> run
        self.started: list[tuple[int, int]] = []  # trial, samples
        self.stopped: list[int] = []
        self._trainers = 0
        self.tell(events.Begun())

    def tell(self, event: events.Event) -> None:
        """Have the study take an event, and do what it asks."""
        self.study, actions = step(self.study, event, 1.0)
        for action in actions:
            self._act(action)

    def _act(self, action: events.Action) -> None:
        if isinstance(action, events.Ask):
            self.tell(events.Asked(number=action.number, params=self.sampling.ask(action.number)))
        elif isinstance(action, events.Tell):
            self.sampling.tell(self.study.trials[action.number])
        elif isinstance(action, events.Start):
            self._trainers += 1
            self.running[action.number] = action.run
            self.started.append((action.number, self.study.samples(self.study.trials[action.number])))
            self.tell(events.Started(number=action.number, run=action.run, trainer=self._trainers))
        else:
            self.stopped.append(action.number)
            self.end(action.number, TrainerStatus.CANCELLED)

    def end(self, number: int, status: TrainerStatus = TrainerStatus.COMPLETED, *, says: bool = True) -> None:
        """A trial's trainer ends: by itself with its rung's samples done."""
        trial = self.study.trials[number]
        samples = self.study.samples(trial) if status is TrainerStatus.COMPLETED else trial.samples
        run = self.running.pop(number)
        value = self.score(number, samples) if says else None
        self.tell(
            events.Ended(number=number, run=run, status=status, reason="why", samples=samples, value=value)
        )

    def report(self, number: int, samples: int) -> None:
        """A trial's trainer reports the metric."""
        value = self.score(number, samples)
        self.tell(events.Reported(number=number, run=self.running[number], samples=samples, value=value))

    def finish(self) -> None:
        """End trainers, the oldest first, until none runs."""
        while self.running:
            self.end(next(iter(self.running)))
