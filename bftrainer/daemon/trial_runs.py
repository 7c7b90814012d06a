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
from bftrainer.errors import NameTakenError, StoreError
from bftrainer.model.reports import Progress, TrainerSummary
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.ports import Clock, Launcher, Store
from bftrainer.search import events
from bftrainer.search.fill import trainer_of
from bftrainer.search.trial import Study, TrialStatus
from bftrainer.settings.live import LiveSettings

AGAIN_S = 5.0
"""After so long a trainer is submitted again that was not taken."""


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
    _runs: dict[int, Run] = field(default_factory=dict)  # by trainer
    _said: dict[int, float] = field(default_factory=dict)  # the last value of each trainer that was told
    _leaving: dict[int, Run] = field(default_factory=dict)  # ended; their workers have not
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # what the daemon tells

    def ended(self, trainer: int) -> None:
        """The engine has ended a trainer. Its trial hears of it when the last worker has gone: until then it
        may still write a checkpoint."""
        run = self._runs.pop(trainer, None)
        self._said.pop(trainer, None)
        if run is None:
            return
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
        """Tell of the ends of trainers whose last workers have gone."""
        for trainer, run in list(self._leaving.items()):
            if not self.launcher.workers(trainer):
                del self._leaving[trainer]
                self._tell_end(run, self.index.over(trainer))

    def held(self) -> dict[int, list[int]]:
        """Study -> how many nodes each of its trainers holds, of those that hold some."""
        held: dict[int, list[int]] = {}
        for trainer in self.runner.state.active.values():
            run = self._runs.get(trainer.id)
            if run is not None and trainer.nodes:
                held.setdefault(run.study, []).append(len(trainer.nodes))
        return held

    # what studies decide

    def act(self, study: Study, action: events.Start | events.Stop) -> None:
        """Do what a study has decided."""
        if isinstance(action, events.Stop):
            self.orders.cancel(action.trainer)
        else:
            self._in_background(self._submit(study, Run(study.id, action.number, action.run)))

    async def _submit(self, study: Study, run: Run) -> None:
        """Submit the trainer of a trial's run."""
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
        self._adopt(run, id_)

    def _adopt(self, run: Run, trainer: int) -> None:
        self._runs[trainer] = run
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
            self._adopt(own, stored.id)
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

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
