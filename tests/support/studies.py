"""Studies without a daemon: their trainers are made up, and end as a test says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from bftrainer.model.trainer import TrainerStatus
from bftrainer.search import events
from bftrainer.search.decide import step
from bftrainer.search.files.parse import parse
from bftrainer.search.optuna.sampling import Sampling
from bftrainer.search.study import StudySpec
from bftrainer.search.trial import Study
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from tests.support.site import SCRIPTS, Site
from tests.support.waiting import LONG_S

TEXT: dict[str, Any] = {
    "name": "s",
    "trainer": {"command": ["python", "t.py", "--lr", "{lr}"], "nodes": {"max": 4}},
    "space": {"lr": {"float": [0.001, 1.0], "log": True}},
    "metric": "loss",
    "trials": 8,
    "budget": 800,
}

CURVED: dict[str, Any] = {
    "name": "digits",
    "trainer": {
        "command": ["python", "digits.py", "--lr", "{lr}"],
        "nodes": {"min": 1, "max": 4},
        "curve": [[1, 1000], [2, 1900], [4, 3400]],
    },
    "space": {"lr": {"float": [0.001, 0.5], "log": True}},
    "metric": "loss",
    "trials": 8,
    "budget": 40_000,
    "stopping": {"halving": {"least": 10_000, "eta": 2}},
    "deadline": "1h",
}
"""One of which it can be forecast when it ends."""


def curved(*, trainer: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> StudySpec:
    """A study's spec: of CURVED with these keys instead, in its trainer, too; None: without the key."""
    own = {key: value for key, value in {**CURVED["trainer"], **trainer}.items() if value is not None}
    text = yaml.safe_dump({**CURVED, **more, "trainer": own}, sort_keys=False)
    return parse(text, "study.yaml", Path("/"))


def settings_of(**given: Any) -> LiveSettings:
    """Settings that no file of this machine has a part in."""
    return LiveSettings(load(given, environ={"XDG_CONFIG_HOME": "/nowhere"}))


def filled(study: Study, work: Callable[[], Any]) -> Future[Any]:
    """What a study's thread makes of work: here and now."""
    done: Future[Any] = Future()
    done.set_result(work())
    return done


def submit_scored(
    site: Site, name: str, *, delay_s: float = 0.0, hold: Sequence[int] = (), **more: Any
) -> Path:
    """Submit a study whose trials write down what they do, and wait after `hold` samples for `let_go`.
    Returns where. Keys of its trainer that are None are left out."""
    notes = site.root / name
    notes.mkdir()
    for samples in hold:
        (notes / f"hold-{samples}").touch()
    trainer = {
        "command": ["python", "score.py", str(notes), "{trial}", "{x}", str(delay_s)],
        "nodes": {"min": 1, "max": 2},
        "checkpoint": {"every_s": 0.5},
        **more.pop("trainer", {}),
    }
    study = {
        "name": name,
        "trainer": {key: value for key, value in trainer.items() if value is not None},
        "space": {"x": {"float": [0.0, 1.0]}},
        "metric": "score",
        "direction": "maximize",
        "trials": 4,
        "budget": 800,
        "sampler": "random",
        **more,
    }
    body = {"spec": json.dumps(study), "name": name, "base": str(SCRIPTS)}
    site.client.call("POST", "studies", body=body)
    return notes


HALVES: dict[str, Any] = {"budget": 400, "stopping": {"halving": {"least": 200, "eta": 2}}}
"""Of a study of two trials, the better one goes on."""


def assert_halved(site: Site) -> None:
    """Wait until the study `halves` ends, as HALVES says: well, and with its better trial."""
    site.until(lambda: site.get("studies/halves")["ended_at"], LONG_S, "the study has ended")
    found = site.get("studies/halves")
    assert found["status"] == "completed"
    assert Counter(len(t["results"]) for t in found["table"]) == {1: 1, 2: 1}
    best = min(found["table"], key=lambda t: abs(t["params"]["x"] - 0.3))
    assert found["best"]["number"] == best["number"]


def let_go(notes: Path, samples: int) -> None:
    """Trials go on that wait after so many samples."""
    (notes / f"hold-{samples}").unlink()


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
        self._trainers, self.now = 0, 1.0
        self.tell(events.Begun())

    def tell(self, event: events.Event) -> None:
        """Have the study take an event, and do what it asks."""
        self.study, actions = step(self.study, event, self.now)
        for action in actions:
            self._act(action)

    def _act(self, action: events.Action) -> None:
        if isinstance(action, events.Ask):
            params = self.sampling.ask(action.number, action.known)
            self.tell(events.Asked(number=action.number, params=params, known=action.known))
        elif isinstance(action, events.Tell):
            self.sampling.tell(self.study.trials[action.number])
        elif isinstance(action, events.StartTrial):
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
            events.TrialEnded(
                number=number, run=run, status=status, reason="why", samples=samples, value=value
            )
        )

    def report(self, number: int, samples: int) -> None:
        """A trial's trainer reports the metric."""
        value = self.score(number, samples)
        self.tell(events.Reported(number=number, run=self.running[number], samples=samples, value=value))

    def finish(self) -> None:
        """End trainers, the oldest first, until none runs."""
        while self.running:
            self.end(next(iter(self.running)))
