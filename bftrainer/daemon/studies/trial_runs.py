"""The trainers of studies' trials: submitted, found again after a restart, and followed to their ends.

All but the filling in of values runs in the event loop. A trial's trainer is a trainer like any other,
submitted for the study's user. It ends by itself at its rung; a later run of the trial goes on from its
checkpoints.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from bftrainer.background import Background
from bftrainer.daemon.index import Index
from bftrainer.daemon.orders import SiteOrders
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.studies.deciding import StudyThread
from bftrainer.daemon.studies.trial_starts import TrialStarts
from bftrainer.errors import DamagedError, NameTakenError, StoreError
from bftrainer.model.reports import Progress, TrainerSummary
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.performance.estimate import known_speeds
from bftrainer.ports import Clock, Launcher, Store
from bftrainer.search import events
from bftrainer.search.fill import trainer_of
from bftrainer.search.plan.of_study import Learnt
from bftrainer.search.trial import Study, TrialStatus
from bftrainer.settings.live import LiveSettings

T = TypeVar("T")
Wanted = TypeVar("Wanted")
AGAIN_S = 5.0
"""Seconds until a trainer that was not taken is submitted again."""
AT_ONCE = 4
"""Trainers that are submitted at a time: a study may begin hundreds of trials at once, and users' orders wait
behind what is submitted."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """Identifies the run of a trial that a trainer is."""

    study: int
    number: int
    run: int


@dataclass(slots=True, kw_only=True)
class TrialRuns:
    """Maps trainers to trials: between the studies' `thread` and the daemon's work with trainers."""

    settings: LiveSettings
    clock: Clock
    store: Store
    index: Index
    runner: Runner
    launcher: Launcher
    orders: SiteOrders
    store_id: str
    thread: StudyThread
    starts: TrialStarts = field(default_factory=TrialStarts)
    _runs: dict[int, TrialRun] = field(default_factory=dict)  # by trainer
    _said: dict[int, float] = field(default_factory=dict)  # last told of each: its value, or a hash of names
    _samples: dict[int, int] = field(default_factory=dict)  # the most that each trainer has told of
    _moved: dict[int, float] = field(default_factory=dict)  # study -> when a trial has last got further
    _leaving: dict[int, TrialRun] = field(default_factory=dict)  # ended; their workers have not
    _under_way: Counter[str] = field(default_factory=Counter)  # trainers that are being submitted, by user
    _background: Background = field(default_factory=Background)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    # what the daemon tells

    def ended(self, trainer: int) -> None:
        """The engine has ended a trainer. Its trial hears of it when the last worker has gone: until then it
        may still write a checkpoint."""
        run = self._runs.pop(trainer, None)
        self._said.pop(trainer, None)
        self._samples.pop(trainer, None)
        self.starts.over(trainer)
        if run is None:
            return
        self._moved[run.study] = self.clock.now()
        if self.launcher.workers(trainer):
            self._leaving[trainer] = run
        else:
            self._tell_end(run, self.index.over(trainer))

    def reported(self, report: Progress) -> None:
        """A trainer has reported."""
        run = self._runs.get(report.trainer)
        study = None if run is None else self.thread.snapshots.get(run.study)
        if run is None or study is None:
            return
        if report.samples > self._samples.get(report.trainer, -1):
            self._samples[report.trainer] = report.samples
            self.starts.trains(run.study, report, study.trials[run.number].samples)
            self._moved[run.study] = self.clock.now()
        value = report.metrics.get(study.spec.metric)
        trial, names = study.trials[run.number], tuple(sorted(report.metrics))
        if value is None and trial.measured is None and hash(names) != self._said.get(report.trainer):
            self._said[report.trainer] = hash(names)
            self.thread.tell(run.study, events.Unmeasured(number=run.number, run=run.run, names=names))
        if value is not None and value != self._said.get(report.trainer):
            self._said[report.trainer] = value
            event = events.Reported(number=run.number, run=run.run, samples=report.samples, value=value)
            self.thread.repeat(run.study, event)

    async def find_all(self, study: Study) -> None:
        """After a restart: find the trainers of a study's trials that ran."""
        for trial in study.trials.values():
            if trial.status is TrialStatus.RUNNING:
                await self._find(study, trial.number, trial.run)

    def look(self) -> None:
        """Tell of the ends of trainers whose last workers have gone; forget studies that have ended."""
        for study in [study for study in self._moved if study not in self.thread.snapshots]:
            del self._moved[study]
        self.starts.forget(self.thread.snapshots)
        for trainer, run in list(self._leaving.items()):
            if not self.launcher.workers(trainer):
                del self._leaving[trainer]
                self._background.start(self._tell_stored_end(trainer, run))

    def moved(self, study: int) -> float:
        """Return when a trial of a study last progressed, began or ended, as far as this daemon has seen."""
        return self._moved.setdefault(study, self.clock.now())

    def samples(self, study: int) -> dict[int, int]:
        """Return how far the trials of a study have told that they are, by number."""
        own = ((trainer, run.number) for trainer, run in self._runs.items() if run.study == study)
        return {number: self._samples[trainer] for trainer, number in own if trainer in self._samples}

    def held(self) -> dict[int, list[int]]:
        """Study -> how many nodes each of its trainers holds, of those that hold some."""
        held: dict[int, list[int]] = {}
        for trainer in self.runner.state.active.values():
            run = self._runs.get(trainer.id)
            if run is not None and trainer.nodes:
                self.starts.placed(trainer.id, self.clock.now())
                held.setdefault(run.study, []).append(len(trainer.nodes))
        return held

    def learnt(self, study: int) -> Learnt:
        """Return how fast a study's trials are and what they take to start, as far as is known now."""
        state = self.runner.state
        own = (t for t in state.active.values() if (run := self._runs.get(t.id)) and run.study == study)
        known = next((found for t in own if (found := known_speeds(t, state.programs))), None)
        return Learnt(known[0] if known else (), self.starts.typical_s(study))

    # what studies decide

    def act(self, study: Study, action: events.StartTrial | events.StopTrial) -> None:
        """Do what a study has decided."""
        if isinstance(action, events.StopTrial):
            self.orders.cancel(action.trainer)
        else:
            self._background.start(self._submit(study, TrialRun(study.id, action.number, action.run)))

    async def _submit(self, study: Study, run: TrialRun) -> None:
        """Submit the trainer of a trial's run when its turn has come, unless it is to stop by then."""
        async with self._turn:
            if self._is_to_stop(run):
                event = events.Refused(number=run.number, run=run.run, reason="", again=False)
                self.thread.tell(run.study, event)
            else:
                await self._submit_now(study, run)

    def _is_to_stop(self, run: TrialRun) -> bool:
        study = self.thread.snapshots.get(run.study)
        trial = None if study is None else study.trials.get(run.number)
        return trial is not None and trial.run == run.run and trial.stopping is not None

    async def _submit_now(self, study: Study, run: TrialRun) -> None:
        if self.places(study.user) <= 0:
            self._refused(run, "as many trainers have not ended as may be")
            return
        self._under_way[study.user] += 1
        try:
            wanted = await self._filled(study, run)
            id_ = await self.orders.submit(wanted)
            self.index.submitted(id_, wanted, self.clock.now())
        except NameTakenError as error:
            self.thread.tell(
                run.study, events.Refused(number=run.number, run=run.run, reason=str(error), again=False)
            )
            return
        except StoreError as error:
            self._refused(run, str(error))
            return
        finally:
            self._under_way[study.user] -= 1
            self._under_way += Counter()  # forget those that have none
        self._adopt(run, id_, wanted.priority)

    def places(self, user: str) -> int:
        """Return how many more trainers a user's trials may have now: they count as the user's own ones. The
        bound of one user is for sites, and holds for trials of admins, too."""
        settings, coming = self.settings.current, self._under_way
        left = settings.max_trainers - self.index.count(None) - coming.total()
        if settings.mode == "site":
            left = min(left, settings.max_trainers_per_user - self.index.count(user) - coming[user])
        return max(0, left)

    def prioritise(self, study: int, to: float) -> None:
        """Give the trainers of a study's trials another priority."""
        for trainer, run in self._runs.items():
            if run.study == study:
                self.orders.prioritise(trainer, to)

    def _adopt(self, run: TrialRun, trainer: int, priority: float) -> None:
        """Follow a trainer; it has the study's priority, also if that has changed since it was submitted."""
        self._runs[trainer] = run
        self._moved[run.study] = self.clock.now()
        study = self.thread.snapshots.get(run.study)
        if study is not None and study.spec.trainer.priority != priority:
            self.orders.prioritise(trainer, study.spec.trainer.priority)
        self.thread.tell(run.study, events.Started(number=run.number, run=run.run, trainer=trainer))

    def _refused(self, run: TrialRun, reason: str) -> None:
        """Try again in a while."""
        event = events.Refused(number=run.number, run=run.run, reason=reason, again=True)
        asyncio.get_running_loop().call_later(AGAIN_S, self.thread.tell, run.study, event)

    async def _find(self, study: Study, number: int, run: int) -> None:
        """Go on with the trainer that the daemon before has submitted for a trial's run; submit it if it has
        not. Its name and its folder tell which it is."""
        own = TrialRun(study.id, number, run)
        wanted = await self._filled(study, own)
        # no trainer has the number 0
        found = (await read_at_last(self.runner, self.store.latest_named, wanted.name)).get(study.user, 0)
        try:
            stored = await read_at_last(self.runner, self.store.trainer, found)
        except DamagedError:
            self._leaving[found] = own  # its end is told once its workers have gone, too
            return
        if stored is None or stored.spec.checkpoint_dir != wanted.checkpoint_dir:
            self._background.start(self._submit(study, own))
            return
        over = self.index.over(stored.id) or (stored.summary if stored.status.final else None)
        if over is None:
            self._adopt(own, stored.id, stored.spec.priority)
        elif self.launcher.workers(stored.id):  # the daemon before has died while they wrote checkpoints
            self._leaving[stored.id] = own
        else:
            self._tell_end(own, over)

    async def _filled(self, study: Study, run: TrialRun) -> TrainerSpec:
        """The spec of a trial's run. Its user's texts may be long, and are not filled in the event loop."""
        return await asyncio.wrap_future(self.thread.fill(study, partial(self._spec, study, run)))

    def _spec(self, study: Study, run: TrialRun) -> TrainerSpec:
        trial = study.trials[run.number]
        return trainer_of(
            study.spec,
            run.number,
            trial.params,
            run=run.run,
            samples=study.samples(trial),
            checkpoint_dir=str(self.folder(study) / str(run.number)),
        )

    def folder(self, study: Study) -> Path:
        """The folder in which the trials of a study have their checkpoints, and their own folders."""
        own = study.spec.trainer
        place = Path(
            own.checkpoint_dir or Path(own.workdir, self.settings.current.trainer_dir.format(user=study.user))
        )
        return place / f"{study.spec.name}-{study.id}-{self.store_id}"

    def _tell_end(self, run: TrialRun, over: TrainerSummary | None) -> None:
        study = self.thread.snapshots.get(run.study)
        if study is None:
            return
        metrics = over.metrics if over else {}
        self.thread.tell(
            run.study,
            events.TrialEnded(
                number=run.number,
                run=run.run,
                status=over.status if over else TrainerStatus.CANCELLED,
                reason=over.reason if over else "nothing is known of its end",
                samples=over.samples if over else 0,
                value=metrics.get(study.spec.metric),
                names=tuple(sorted(metrics)),
            ),
        )

    async def _tell_stored_end(self, trainer: int, run: TrialRun) -> None:
        """Tell of an end that may be of before a restart: then the store alone knows it."""
        over = self.index.over(trainer)
        if over is None:
            with suppress(DamagedError):
                stored = await read_at_last(self.runner, self.store.trainer, trainer)
                over = stored.summary if stored is not None and stored.status.final else None
        self._tell_end(run, over)


async def read_at_last(runner: Runner, read: Callable[[Wanted], T], wanted: Wanted) -> T:
    """Ask the store, again and again while it cannot be read: the daemon goes on without it meanwhile.

    Raises:
        DamagedError: this row makes no sense.
    """
    while True:
        try:
            return await runner.aside(read, wanted)
        except DamagedError:
            raise
        except StoreError:
            await asyncio.sleep(AGAIN_S)
