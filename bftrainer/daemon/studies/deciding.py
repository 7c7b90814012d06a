"""The thread in which studies decide: Optuna may take long, and nothing else waits for it.

It owns the studies' states. What is decided is queued for the store before it is done (write-ahead): the
journal's writer stores in order, so that a trainer is submitted only after its trial is known to have it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from bftrainer.daemon.lanes import fair_thread
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.errors import BftrainerError
from bftrainer.ports import Clock
from bftrainer.search import events
from bftrainer.search.decide import OrderRefusedError, step
from bftrainer.search.rows import changed, stored_points, stored_study, stored_trial
from bftrainer.search.study import Sampler
from bftrainer.search.trial import Study, StudyStatus, Trial
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.threads import OverTimeError

log = logging.getLogger(__name__)

T = TypeVar("T")
Act = Callable[[Study, events.StartTrial | events.StopTrial], None]


class StudyThread:
    """Takes events of studies, one after the other; users take turns. `act` is called in the thread with
    what is to be done.

    Samplers have a thread of their own: one that thinks for long keeps no other study from going on.

    `snapshots` has each unfinished study as it is now: any thread may read it.
    """

    def __init__(
        self, settings: LiveSettings, journal: StoreJournal, clock: Clock, telemetry: Telemetry, act: Act
    ) -> None:
        self._journal, self._clock, self._telemetry, self._act = journal, clock, telemetry, act
        self._thread = fair_thread("studies", telemetry)
        self._sampler = fair_thread("samplers", telemetry)
        self._samplings: dict[int, Any] = {}
        self._changing = threading.Lock()  # the event loop begins studies, and repeats events
        self._repeated: dict[tuple[int, int, int], events.Reported | events.TrialSlots] = {}  # that wait
        self.snapshots: Mapping[int, Study] = {}
        self.older: dict[int, tuple[Trial, ...]] = {}  # study -> what its sampler learns from at first

    def begin(self, study: Study) -> Future[None]:
        """Take a study up, a new one or one of the store. Returns what is done when the store has it."""
        self._put(study)
        stored = self._journal.keep_study(stored_study(study), (), ahead=True)
        # it is stored before its trials
        stored.add_done_callback(lambda _: self.tell(study.id, events.Begun()))
        return stored

    def tell(self, study: int, event: events.Event) -> Future[Study | None]:
        """Have a study take an event, after those before it. Returns it as it is then; None: it had ended."""
        return self._thread.submit(self._user_of(study), partial(self._take, study, event))

    def repeat(self, study: int, event: events.Reported | events.TrialSlots) -> None:
        """Have a study take an event of those that come again and again: where one of the same run or study
        still waits, both count as one. Scripts may report faster than a study of many trials decides."""
        run = (event.number, event.run) if isinstance(event, events.Reported) else (-1, 0)
        key = (study, *run)
        with self._changing:
            before = self._repeated.get(key)
            if isinstance(before, events.TrialSlots) and isinstance(event, events.TrialSlots):
                event = replace(event, node_s=before.node_s + event.node_s)
            self._repeated[key] = event
        if before is None:
            self._thread.submit(self._user_of(study), partial(self._take_last, key))

    def fill(self, study: Study, work: Callable[[], T]) -> Future[T]:
        """Have a trial's values filled in for a study's user: what comes of it may be long."""
        return self._thread.submit(study.user, work)

    def fail(self, study: Study, error: Exception) -> None:
        """End a study that cannot go on."""
        self._thread.submit(study.user, partial(self._fail, study.id, error))

    def close(self) -> None:
        """Let go of the thread."""
        for thread in (self._thread, self._sampler):
            thread.close()

    def _user_of(self, study: int) -> str:
        known = self.snapshots.get(study)
        return known.user if known is not None else ""

    # in the thread

    def _put(self, study: Study) -> None:
        with self._changing:
            self._replace(study)

    def _replace(self, study: Study) -> None:
        if study.ended_at is None:
            self.snapshots = {**self.snapshots, study.id: study}
        else:
            self.snapshots = {id_: own for id_, own in self.snapshots.items() if id_ != study.id}

    def _take_last(self, key: tuple[int, int, int]) -> None:
        with self._changing:
            event = self._repeated.pop(key)
        self._take(key[0], event)

    def _take(self, id_: int, event: events.Event) -> Study | None:
        """Take an event, store what it leads to, and have it done."""
        before = self.snapshots.get(id_)
        if before is None:
            return None
        try:
            after, actions = step(before, event, self._clock.now())
            self._keep(before, after)
            for action in actions:
                if isinstance(action, events.StartTrial | events.StopTrial):
                    self._act(after, action)
                else:
                    self._sampler.submit(after.user, partial(self._sample, after, action))
        except OrderRefusedError:  # its user's matter: who gave the order is told
            raise
        except OverTimeError as error:  # to end the study is a piece of its own, with time of its own
            self.fail(before, error)
            return before
        except Exception as error:  # a bug: one study ends, and no other
            log.exception("the study %d fails", id_)
            self._fail(id_, error)
            return self.snapshots.get(id_)
        return after

    def _fail(self, id_: int, error: Exception) -> None:
        """End a study that cannot go on: its user's matter, which others do not see."""
        self._telemetry.trouble("study", error, study=id_, instead="it has ended")
        said = str(error) if isinstance(error, BftrainerError) else f"{type(error).__name__}: {error}"
        self._break(id_, said[:400])

    def _keep(self, before: Study, after: Study) -> None:
        trials = [stored_trial(trial) for trial in changed(before, after)]
        trials += stored_points(after, len(before.points))
        self._put(after)
        if trials or _told(before) != _told(after):
            self._journal.keep_study(stored_study(after), trials)
        if after.ended_at is not None:
            self.older.pop(after.id, None)
            self._sampler.submit(after.user, partial(self._samplings.pop, after.id, None))

    def _break(self, id_: int, reason: str) -> None:
        study = self.snapshots.get(id_)
        if study is None:
            return
        over, actions = step(study, events.Over(reason=f"it could not go on: {reason}"), self._clock.now())
        self._keep(study, over)
        for action in actions:
            if isinstance(action, events.StopTrial):
                self._act(over, action)

    # in the samplers' thread

    def _sample(self, study: Study, action: events.Ask | events.Tell) -> None:
        """Choose parameters, or take in what a trial has shown."""
        try:
            if isinstance(action, events.Ask):
                params = self._sampling(study).ask(action.number, action.known)
                asked = events.Asked(number=action.number, params=params, known=action.known)
                self.tell(study.id, asked)
            elif study.spec.sampler in (Sampler.TPE, Sampler.CMAES) and study.status is StudyStatus.RUNNING:
                self._sampling(study).tell(study.trials[action.number])
        except Exception as error:  # a sampler that cannot bear what it is given: one study ends
            log.exception("the sampler of the study %d fails", study.id)
            self.fail(study, error)

    def _sampling(self, study: Study) -> Any:
        """Return the state of a study's sampler; Optuna is loaded for the first one."""
        found = self._samplings.get(study.id)
        if found is None:
            trials = [*self.older.get(study.id, ()), *study.trials.values()]
            found = import_module("bftrainer.search.optuna.sampling").Sampling(study.spec, trials)
            self._samplings[study.id] = found
        return found


def _told(study: Study) -> tuple[object, ...]:
    """Return what is stored of a study, beside its trials, whenever it changes."""
    return study.status, study.ended_at, study.spec.trainer.priority, study.spec.added, study.tried
