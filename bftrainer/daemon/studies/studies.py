"""Studies: what users order, and what time and the pool do to them. All of it runs in the event loop, and
nothing of it waits; studies decide in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bftrainer.api.errors import FullError, TooManyError
from bftrainer.daemon.index import Index
from bftrainer.daemon.orders import SiteOrders
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.storage.journal import ANSWER_S, StoreJournal
from bftrainer.daemon.studies.deciding import StudyThread
from bftrainer.daemon.studies.forecasts import Means, StudyForecasts
from bftrainer.daemon.studies.mirrors import Mirrors
from bftrainer.daemon.studies.trial_runs import TrialRuns
from bftrainer.errors import NameTakenError, StoreError
from bftrainer.messages.commands.daemon import MOST_OF_A_USER, MOST_OF_ALL, NAME_TAKEN, NOT_STORED
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.ports import Clock, Emit, Launcher, Store
from bftrainer.search import events
from bftrainer.search.cost import ALL_MB, KB, USER_MB, held_by_trial
from bftrainer.search.rows import DamagedStudyError, loaded
from bftrainer.search.study import SPARE, StudySpec
from bftrainer.search.trial import Study, StudyFile, Trial, TrialStatus
from bftrainer.settings.live import LiveSettings
from bftrainer.spec.counted import counted
from bftrainer.telemetry.telemetry import Telemetry

TRIALS_AT_ONCE = 256
"""Trials of one study that have a trainer at a time: each has some kB here, and a part in every plan."""
EVERY_S = 0.5
"""Seconds between two looks at deadlines, node-hours and the room in the pool."""
LAST = 20
"""Ended studies that are looked at after a start: their storages may lack their ends."""


@dataclass(slots=True, kw_only=True)
class Studies:
    """All studies that have not ended."""

    settings: LiveSettings
    clock: Clock
    store: Store
    journal: StoreJournal
    index: Index
    runner: Runner
    launcher: Launcher
    orders: SiteOrders
    telemetry: Telemetry
    store_id: str
    emit: Emit
    thread: StudyThread = field(init=False)
    forecasts: StudyForecasts = field(init=False)
    runs: TrialRuns = field(init=False)
    mirrors: Mirrors = field(init=False)
    _copying: asyncio.Task[None] | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _looked_at: float = 0.0
    _last_id: int = 0

    def __post_init__(self) -> None:
        self.thread = StudyThread(self.settings, self.journal, self.clock, self.telemetry, self._act)
        self.forecasts = StudyForecasts(self.settings, self.clock, self.telemetry, self.emit)
        self.runs = TrialRuns(
            settings=self.settings,
            clock=self.clock,
            store=self.store,
            index=self.index,
            runner=self.runner,
            launcher=self.launcher,
            orders=self.orders,
            store_id=self.store_id,
            thread=self.thread,
        )
        self.mirrors = Mirrors(self.settings, self.clock)
        self.runner.ended, self.journal.reported = self.runs.ended, self.runs.reported

    # what users order

    async def submit(
        self,
        user: str,
        spec: StudySpec,
        source: StudyFile,
        older: tuple[int, tuple[Trial, ...]] | None = None,
    ) -> Study:
        """Store a study and begin with it; its sampler learns from trials of an `older` one, with its number.

        Raises:
            NameTakenError: an unfinished study of the user has its name.
            TooManyError: there are as many studies as may be.
            StoreError: nothing was submitted.
        """
        self.journal.check_answers()
        own = [study for study in self.thread.snapshots.values() if study.user == user]
        if other := next((study.id for study in own if study.spec.name == spec.name), None):
            raise NameTakenError(
                NAME_TAKEN.say(kind="study", name=spec.name, command="study cancel", other=other)
            )
        limits = self.settings.current
        if len(own) >= limits.max_studies_per_user:
            self.telemetry.bounded("max_studies_per_user", user)
            what, setting = "of your studies have not ended", " (max_studies_per_user)"
            raise TooManyError(MOST_OF_A_USER.say(count=len(own), what=what, setting=setting))
        each = held_by_trial(spec)
        self._check_memory(user, spec.trials * each)
        self._last_id += 1
        at_once = spec.parallelism and min(spec.parallelism, TRIALS_AT_ONCE)
        spec = replace(spec, trainer=replace(spec.trainer, user=user), parallelism=at_once)
        study = replace(Study.new(self._last_id, spec, user, self.clock.now(), source), trial_bytes=each)
        if older is not None:
            study = replace(study, older=older[0])
            self.thread.older[study.id] = older[1]
        stored = self.thread.begin(study)
        self._copy([study.spec.storage])
        await asyncio.wait([asyncio.wrap_future(stored)], timeout=ANSWER_S)
        if not stored.done():
            self.thread.tell(study.id, events.Cancel())
            raise StoreError(NOT_STORED.say())
        return study

    def taken(self, user: str, but: int | None = None) -> tuple[int, int]:
        """The memory that unfinished studies have, other than the one with the number `but`: those of a user,
        and of all users (bytes)."""
        others = [study for study in self.thread.snapshots.values() if study.id != but]
        own = sum(study.bytes for study in others if study.user == user)
        return own, sum(study.bytes for study in others)

    def _check_memory(self, user: str, more: int) -> None:
        """Count again: others may have been submitted since the study file was read."""
        own, all_of = self.taken(user)
        if own + more > USER_MB * KB * KB:
            self.telemetry.bounded("max_study_mb", user)
            what = "would be the memory of your unfinished studies"
            raise TooManyError(MOST_OF_A_USER.say(count=f"{USER_MB} MB", what=what, setting=""))
        if all_of + more > ALL_MB * KB * KB:
            self.telemetry.bounded("max_study_mb", user)
            what = "of memory is what unfinished studies may have"
            raise FullError(MOST_OF_ALL.say(count=f"{ALL_MB:,} MB", what=what, setting=""))

    async def order(self, study: Study, event: events.Event) -> Study:
        """Pause a study, let it go on, or end it. Returns it as it is then, or as it was if it has not heard
        of that yet."""
        told = asyncio.wrap_future(self.thread.tell(study.id, event))
        done, _ = await asyncio.wait([told], timeout=ANSWER_S)
        return (told.result() if done else None) or study

    async def prioritise(self, study: Study, to: float) -> Study:
        """Give the trainers of a study's trials another priority, those of now and those to come."""
        known = await self.order(study, events.Prioritise(to=to))
        self.runs.prioritise(study.id, to)
        return known

    # the daemon's parts

    async def load(self) -> None:
        """Read the studies that have not ended, before the daemon recovers."""
        self._last_id = await self.runner.aside(self.store.studies.last_id)
        for kept in await self.runner.aside(self.store.studies.unfinished):
            trials = await self.runner.aside(self.store.studies.trials, kept.id)
            try:
                study = await self.runner.aside(self._loaded, kept, trials)
            except Exception as error:  # noqa: BLE001  whatever is in a file: one study ends, and no daemon
                self.telemetry.trouble("studies", str(error), study=kept.id, instead="the study has ended")
                over = replace(kept, status="ended", reason=str(error)[:400], ended_at=self.clock.now())
                self.journal.keep_study(over, ())
                continue
            self.thread.snapshots = {**self.thread.snapshots, study.id: study}
            if study.older is not None:
                self.thread.older[study.id] = await self.runner.aside(self._older, study)
        ended = await self.runner.aside(self.store.studies.ended, LAST)
        self._copy(study.spec.storage for study in self.thread.snapshots.values())
        self._copy(study.brief.get("storage") for study in ended)  # just before the daemon, perhaps

    def _copy(self, storages: Iterable[str | None]) -> None:
        """Have the helper started if a study has a storage."""
        if any(storages):
            self.mirrors.want()

    def _older(self, study: Study) -> tuple[Trial, ...]:
        """Return what a study's sampler learns from at first; nothing if that can be read no more."""
        kept = self.store.studies.find(str(study.older))
        if kept is None or kept.user != study.user:
            return ()
        try:
            return loaded(kept, self.store.studies.trials(kept.id)).known_to(study.spec)
        except (DamagedStudyError, ValueError):
            return ()

    def _loaded(self, kept: StoredStudy, trials: Sequence[StoredTrial]) -> Study:
        study = loaded(kept, trials)
        trainer = counted(study.spec.trainer, self.settings.current.engine)
        return replace(study, spec=replace(study.spec, trainer=trainer))

    async def run(self) -> None:
        """Find the trainers of the trials that ran, then look after deadlines and the pool, for ever."""
        self._loop = asyncio.get_running_loop()
        self._looked_at = self.clock.now()
        self._copying = asyncio.create_task(self.mirrors.run())
        for study in list(self.thread.snapshots.values()):
            try:
                await self.runs.find_all(study)
            except (LookupError, ValueError, TypeError) as error:  # trials of a store that make no sense
                self.thread.fail(study, error)
        for id_ in list(self.thread.snapshots):
            self.thread.tell(id_, events.Begun())
        while True:
            await asyncio.sleep(EVERY_S)
            self._look()

    async def close(self) -> None:
        """Let go of the threads and the helper."""
        if self._copying is not None:
            self._copying.cancel()
        self.thread.close()
        self.forecasts.close()
        await self.mirrors.close()

    def _act(self, study: Study, action: events.StartTrial | events.StopTrial) -> None:
        """Called in the studies' thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.runs.act, study, action)

    def _allowed(self, study: Study, most: int) -> int | None:
        """Return how many trials of a study may have a trainer beside its user's others; None: any number."""
        places = self.runs.places(study.user)
        if places >= most:
            return None
        running = (t for t in study.trials.values() if t.status is TrialStatus.RUNNING)
        return places + sum(t.trainer is not None for t in running)  # others are refused, or come next

    # from time to time

    def _look(self) -> None:
        self.runs.look()
        now = self.clock.now()
        passed, self._looked_at = max(0.0, now - self._looked_at), now
        self.forecasts.forget(self.thread.snapshots)
        if not self.thread.snapshots:
            return
        held = self.runs.held()
        state = self.runner.state
        free = max(0, len(state.pool) - state.held)
        most = TRIALS_AT_ONCE
        machine = sum(state.machine.values()) if state.machine else 0
        for study in self.thread.snapshots.values():
            own = held.get(study.id, [])
            learnt = self.runs.learnt(study.id)
            nodes, samples = sum(own) + free, self.runs.samples(study.id)
            self.forecasts.look(study, Means(nodes, machine, state.settings.unit, learnt, samples))
            room = min(most, len(own) + SPARE + free // study.spec.trainer.n_min)
            allowed = self._allowed(study, most)
            if own or (room, allowed) != (study.room, study.allowed):
                slots = events.TrialSlots(trials=room, node_s=passed * sum(own), allowed=allowed)
                self.thread.repeat(study.id, slots)
            ends_at = study.submitted_at + (study.spec.deadline_s or float("inf"))
            if now >= ends_at and not study.status.final:
                self.thread.tell(study.id, events.Over(reason="its deadline has come"))
