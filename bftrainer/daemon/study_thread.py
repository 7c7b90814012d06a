"""The thread in which studies decide: Optuna may take long, and nothing else waits for it.

It owns the studies' states. What is decided is queued for the store before it is done (write-ahead): the
journal's writer stores in order, so that a trainer is submitted only after its trial is known to have it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

from bftrainer.daemon.journal import Journal
from bftrainer.ports import Clock
from bftrainer.search import events
from bftrainer.search.decide import step
from bftrainer.search.stored import changed, stored_study, stored_trial
from bftrainer.search.study import Sampler
from bftrainer.search.trial import Study, StudyStatus
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

Act = Callable[[Study, events.Start | events.Stop], None]


class StudyThread:
    """Takes events of studies, one after the other. `act` is called in the thread with what is to be done.

    Samplers have a thread of their own: one that thinks for long keeps no other study from going on.

    `snapshots` has each unfinished study as it is now: any thread may read it.
    """

    def __init__(self, journal: Journal, clock: Clock, telemetry: Telemetry, act: Act) -> None:
        self._journal, self._clock, self._telemetry, self._act = journal, clock, telemetry, act
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="studies")
        self._sampler = ThreadPoolExecutor(1, thread_name_prefix="samplers")
        self._samplings: dict[int, Any] = {}
        self._changing = threading.Lock()  # the event loop begins studies
        self.snapshots: Mapping[int, Study] = {}

    def begin(self, study: Study) -> Future[None]:
        """Take a study up, a new one or one of the store. Returns what is done when the store has it."""
        self._put(study)
        stored = self._journal.keep_study(stored_study(study), ())
        self.tell(study.id, events.Begun())
        return stored

    def tell(self, study: int, event: events.Event) -> Future[Study | None]:
        """Have a study take an event, after those before it. Returns it as it is then; None: it had ended."""
        return self._thread.submit(self._take, study, event)

    def close(self) -> None:
        """Let go of the thread."""
        for thread in (self._thread, self._sampler):
            thread.shutdown(wait=False, cancel_futures=True)

    # in the thread

    def _put(self, study: Study) -> None:
        with self._changing:
            self._replace(study)

    def _replace(self, study: Study) -> None:
        if study.ended_at is None:
            self.snapshots = {**self.snapshots, study.id: study}
        else:
            self.snapshots = {id_: own for id_, own in self.snapshots.items() if id_ != study.id}

    def _take(self, id_: int, event: events.Event) -> Study | None:
        """Take an event, store what it leads to, and have it done."""
        before = self.snapshots.get(id_)
        if before is None:
            return None
        try:
            after, actions = step(before, event, self._clock.now())
            self._keep(before, after)
            for action in actions:
                if isinstance(action, events.Start | events.Stop):
                    self._act(after, action)
                else:
                    self._sampler.submit(self._sample, after, action)
        except Exception as error:  # a bug: one study ends, and no other
            log.exception("the study %d fails", id_)
            self._fail(id_, error)
            return self.snapshots.get(id_)
        return after

    def _fail(self, id_: int, error: Exception) -> None:
        self._telemetry.happened("studies", "a study could not go on; see the log")
        self._break(id_, f"{type(error).__name__}: {error}"[:400])

    def _keep(self, before: Study, after: Study) -> None:
        trials = changed(before, after)
        self._put(after)
        if trials or _told(before) != _told(after):
            self._journal.keep_study(stored_study(after), [stored_trial(trial) for trial in trials])
        if after.ended_at is not None:
            self._sampler.submit(self._samplings.pop, after.id, None)

    def _break(self, id_: int, reason: str) -> None:
        study = self.snapshots.get(id_)
        if study is None:
            return
        over, actions = step(study, events.Over(reason=f"it could not go on: {reason}"), self._clock.now())
        self._keep(study, over)
        for action in actions:
            if isinstance(action, events.Stop):
                self._act(over, action)

    # in the samplers' thread

    def _sample(self, study: Study, action: events.Ask | events.Tell) -> None:
        """Choose parameters, or take in what a trial has shown."""
        try:
            if isinstance(action, events.Ask):
                params = self._sampling(study).ask(action.number)
                self.tell(study.id, events.Asked(number=action.number, params=params))
            elif study.spec.sampler in (Sampler.TPE, Sampler.CMAES) and study.status is StudyStatus.RUNNING:
                self._sampling(study).tell(study.trials[action.number])
        except Exception as error:  # a sampler that cannot bear what it is given: one study ends
            log.exception("the sampler of the study %d fails", study.id)
            self._thread.submit(self._fail, study.id, error)

    def _sampling(self, study: Study) -> Any:
        """What a study's sampler knows; Optuna is loaded for the first one."""
        found = self._samplings.get(study.id)
        if found is None:
            found = import_module("bftrainer.search.sampling").Sampling(study.spec)
            for trial in study.trials.values():
                found.tell(trial)
            self._samplings[study.id] = found
        return found


def _told(study: Study) -> tuple[object, ...]:
    """What is stored of a study, beside its trials, whenever it changes."""
    return study.status, study.ended_at, study.spec.trainer.priority
