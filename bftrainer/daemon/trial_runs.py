"""The trainers of studies' trials: submitted, found again after a restart, and followed to their ends.

All of it runs in the event loop. A trial's trainer is a trainer like any other, submitted for the study's
user. It ends by itself at its rung; a later run of the trial goes on from its checkpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer.daemon.index import Index
from bftrainer.daemon.orders import Orders
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.study_thread import StudyThread
from bftrainer.daemon.trial_starts import TrialStarts
from bftrainer.errors import NameTakenError, StoreError
from bftrainer.model.reports import Progress, TrainerSummary
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.performance.estimate import known_speeds
from bftrainer.ports import Clock, Launcher, Store
from bftrainer.search import events
from bftrainer.search.fill import trainer_of
from bftrainer.search.plan.of_study import Learnt
from bftrainer.search.trial import Study, TrialStatus
from bftrainer.settings.live import LiveSettings

AGAIN_S = 5.0
"""After so long a trainer is submitted again that was not taken."""
AT_ONCE = 4
"""So many trainers are submitted at a time: a study may begin hundreds of trials at once, and whatever a user
orders meanwhile waits behind what is submitted."""


@dataclass(frozen=True, slots=True)
class Run:
    """Which run of which trial a trainer is."""

    study: int
    number: int
    run: int


@dataclass(slots=True, kw_only=True)
class TrialRuns:
    """Which trainer is whose: between the studies' `thread` and what the daemon does with trainers."""

    settings: LiveSettings
    clock: Clock
    store: Store
    index: Index
    runner: Runner
    launcher: Launcher
    orders: Orders
    store_id: str
    thread: StudyThread
    starts: TrialStarts = field(default_factory=TrialStarts)
    _runs: dict[int, Run] = field(default_factory=dict)  # by trainer
    _said: dict[int, float] = field(default_factory=dict)  # the last value of each trainer that was told
    _samples: dict[int, int] = field(default_factory=dict)  # the most that each trainer has told of
    _moved: dict[int, float] = field(default_factory=dict)  # study -> when a trial has last got further
    _leaving: dict[int, Run] = field(default_factory=dict)  # ended; their workers have not
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
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
        if value is not None and value != self._said.get(report.trainer):
            self._said[report.trainer] = value
            self.thread.tell(
                run.study,
                events.Reported(number=run.number, run=run.run, samples=report.samples, value=value),
            )

    async def find_all(self) -> None:
        """After a restart: find the trainers of the trials that ran."""
        for study in list(self.thread.snapshots.values()):
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
                self._in_background(self._tell_stored_end(trainer, run))

    def moved(self, study: int) -> float:
        """When a trial of a study has last got further, or begun or ended, as far as this daemon has seen."""
        return self._moved.setdefault(study, self.clock.now())

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
        """How fast a study's trials are and what they take to start, as far as is known now."""
        state = self.runner.state
        own = (t for t in state.active.values() if (run := self._runs.get(t.id)) and run.study == study)
        known = next((found for t in own if (found := known_speeds(t, state.programs))), None)
        return Learnt(known[0] if known else (), self.starts.typical_s(study))

    # what studies decide

    def act(self, study: Study, action: events.Start | events.Stop) -> None:
        """Do what a study has decided."""
        if isinstance(action, events.Stop):
            self.orders.cancel(action.trainer)
        else:
            self._in_background(self._submit(study, Run(study.id, action.number, action.run)))

    async def _submit(self, study: Study, run: Run) -> None:
        """Submit the trainer of a trial's run when its turn has come, unless it is to stop by then."""
        async with self._turn:
            if self._is_to_stop(run):
                event = events.Refused(number=run.number, run=run.run, reason="", again=False)
                self.thread.tell(run.study, event)
            else:
                await self._submit_now(study, run)

    def _is_to_stop(self, run: Run) -> bool:
        study = self.thread.snapshots.get(run.study)
        trial = None if study is None else study.trials.get(run.number)
        return trial is not None and trial.run == run.run and trial.stopping is not None

    async def _submit_now(self, study: Study, run: Run) -> None:
        wanted = self._spec(study, run)
        if self.index.count(None) >= self.settings.current.max_trainers:
            self._refused(run, f"{self.settings.current.max_trainers} trainers have not ended (max_trainers)")
            return
        try:
            id_ = await self.orders.submit(wanted)
        except NameTakenError as error:
            self.thread.tell(
                run.study, events.Refused(number=run.number, run=run.run, reason=str(error), again=False)
            )
            return
        except StoreError as error:
            self._refused(run, str(error))
            return
        self.index.submitted(id_, wanted, self.clock.now())
        self._adopt(run, id_, wanted.priority)

    def prioritise(self, study: int, to: float) -> None:
        """Give the trainers of a study's trials another priority."""
        for trainer, run in self._runs.items():
            if run.study == study:
                self.orders.prioritise(trainer, to)

    def _adopt(self, run: Run, trainer: int, priority: float) -> None:
        """Follow a trainer; it has the study's priority, also if that has changed since it was submitted."""
        self._runs[trainer] = run
        self._moved[run.study] = self.clock.now()
        study = self.thread.snapshots.get(run.study)
        if study is not None and study.spec.trainer.priority != priority:
            self.orders.prioritise(trainer, study.spec.trainer.priority)
        self.thread.tell(run.study, events.Started(number=run.number, run=run.run, trainer=trainer))

    def _refused(self, run: Run, reason: str) -> None:
        """Try again in a while."""
        event = events.Refused(number=run.number, run=run.run, reason=reason, again=True)
        asyncio.get_running_loop().call_later(AGAIN_S, self.thread.tell, run.study, event)

    async def _find(self, study: Study, number: int, run: int) -> None:
        """Go on with the trainer that the daemon before has submitted for a trial's run; submit it if it has
        not. Its name and its folder tell which it is."""
        own = Run(study.id, number, run)
        wanted = self._spec(study, own)
        found = (await self.runner.aside(self.store.latest_named, wanted.name)).get(study.user)
        stored = None if found is None else await self.runner.aside(self.store.trainer, found)
        if stored is None or stored.spec.checkpoint_dir != wanted.checkpoint_dir:
            self._in_background(self._submit(study, own))
            return
        over = self.index.over(stored.id) or (stored.summary if stored.status.final else None)
        if over is None:
            self._adopt(own, stored.id, stored.spec.priority)
        elif self.launcher.workers(stored.id):  # the daemon before has died while they wrote checkpoints
            self._leaving[stored.id] = own
        else:
            self._tell_end(own, over)

    def _spec(self, study: Study, run: Run) -> TrainerSpec:
        trial = study.trials[run.number]
        own = study.spec.trainer
        place = Path(
            own.checkpoint_dir or Path(own.workdir, self.settings.current.trainer_dir.format(user=study.user))
        )
        folder = place / f"{study.spec.name}-{study.id}-{self.store_id}" / str(run.number)
        return trainer_of(
            study.spec,
            run.number,
            trial.params,
            run=run.run,
            samples=study.samples(trial),
            checkpoint_dir=str(folder),
        )

    def _tell_end(self, run: Run, over: TrainerSummary | None) -> None:
        study = self.thread.snapshots.get(run.study)
        if study is None:
            return
        metrics = over.metrics if over else {}
        self.thread.tell(
            run.study,
            events.Ended(
                number=run.number,
                run=run.run,
                status=over.status if over else TrainerStatus.CANCELLED,
                reason=over.reason if over else "nothing is known of its end",
                samples=over.samples if over else 0,
                value=metrics.get(study.spec.metric),
                names=tuple(sorted(metrics)),
            ),
        )

    async def _tell_stored_end(self, trainer: int, run: Run) -> None:
        """Tell of an end that may be of before a restart: then the store alone knows it."""
        over = self.index.over(trainer)
        if over is None:
            stored = await self.runner.aside(self.store.trainer, trainer)
            over = stored.summary if stored is not None and stored.status.final else None
        self._tell_end(run, over)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
