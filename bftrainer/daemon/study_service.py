"""What the daemon answers on studies: implements `api.study_routes.StudyService`.

Callers see and order studies of their own, admins those of everybody; others' are reported as not found.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from bftrainer.api.answers import Answer
from bftrainer.api.callers import Caller, NotAllowedError
from bftrainer.api.errors import UnknownTrainerError
from bftrainer.api.listing import encoded, joined
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.studies import Studies
from bftrainer.daemon.study_views import Now, TrialTexts, View, stored_row, study_row, study_view
from bftrainer.daemon.submissions import Submissions
from bftrainer.daemon.trainers import owner_of
from bftrainer.errors import BftrainerError
from bftrainer.model.studies import StoredStudy
from bftrainer.ports import Store
from bftrainer.search import events
from bftrainer.search.stored import loaded
from bftrainer.search.trial import Source, Study
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

ORDERS: dict[str, type[events.Pause] | type[events.Resume] | type[events.Cancel]] = {
    "pause": events.Pause,
    "resume": events.Resume,
    "cancel": events.Cancel,
}
"""The words of the API for what users may order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyAnswers:
    """Reads studies from memory while they have not ended, and from the store afterwards."""

    settings: LiveSettings
    store: Store
    lanes: Lanes
    runner: Runner
    studies: Studies
    submissions: Submissions
    telemetry: Telemetry
    texts: TrialTexts = field(default_factory=TrialTexts)
    """Of studies that have not ended; the lane `memory` makes these answers."""

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> View:
        """Accept the study file `text`, of a file `name` in the folder `base`.

        Raises:
            NotAllowedError: the caller's trainers are not run here.
            TooManyError, FullError: the caller, or all users together, have submitted too much.
            BftrainerError: the study is wrong, or an unfinished one of the caller has its name.
        """
        if self.settings.current.mode == "site" and caller.uid in (0, os.geteuid()):
            raise NotAllowedError(f"trainers of {caller.user} are not run here; submit as yourself")
        with self.submissions.place(caller):
            spec = await self.submissions.read_study(caller, text, name, base)
            source = Source(text=text, file=name, base=base)
            study = await self.studies.submit(caller.user, spec, source)
            storage = self.studies.mirrors.view(study.id, spec.name, spec.storage)
            return study_row(study) | {"note": storage["error"] if storage else ""}

    async def listed(self, caller: Caller, ended: int) -> Answer:
        """The studies that the caller may see: those that run, and the last `ended` that have ended."""
        user = owner_of(caller)
        own = [s for s in self.studies.thread.snapshots.values() if user in (None, s.user)]
        moved = {study.id: self.studies.runs.moved(study.id) for study in own}

        def make() -> Answer:
            over = [stored_row(study) for study in self.store.studies.ended(ended, user)] if ended else []
            known = {study.id for study in own}
            rows = [row for row in over if row["id"] not in known] + [
                study_row(study, moved[study.id]) for study in own
            ]
            return Answer(joined(encoded(sorted(rows, key=lambda row: row["id"]))))

        return await self.lanes.store.run(caller.user, make)

    async def show(self, caller: Caller, name: str, points: int, most: int | None) -> Answer:
        """All about a study and its trials, each with the last `points` of its course; of many trials `most`.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
        """
        study = self._live(caller, name)
        live = {} if study is None else self._live_trainers(study)
        unit = self.runner.state.settings.unit
        now = Now(unit)
        if study is not None:
            own, forecast = self.studies.runs, self.studies.forecasts.view(study)
            now = Now(unit, forecast, own.moved(study.id), own.learnt(study.id))

        def make() -> Answer:
            found = study or self._ended(caller, name)
            texts = self.texts if study is not None else TrialTexts()
            trials = joined(texts.of(found, live, points, most))
            storage = self.studies.mirrors.view(found.id, found.spec.name, found.spec.storage)
            head = encoded([study_view(found, live, now) | {"storage": storage}])[0]
            return Answer(head[:-1] + b', "table": ' + trials + b"}")

        lane = self.lanes.memory if study is not None else self.lanes.store
        return await lane.run(caller.user, make)

    async def order(self, caller: Caller, name: str, order: str) -> View:
        """Pause a study, let it go on, or end it. Idempotent: to end one that has ended does nothing, and the
        answer's `note` says so. Raises as `show`, and for other orders if it has ended."""
        study = self._live(caller, name)
        if study is None:
            over = await self.lanes.store.run(caller.user, lambda: self._stored(caller, name))
            if order != "cancel":
                raise BftrainerError(f"the study {over.name} has ended ({over.status}); submit it anew")
            note = (
                f"the study {over.name} has ended ({over.status}) already; its results and checkpoints stay"
            )
            return stored_row(over) | {"note": note}
        self.telemetry.ordered(f"study {order}", caller.user, study=study.id, name=study.spec.name)
        return study_row(await self.studies.order(study, ORDERS[order]()))

    async def prioritise(self, caller: Caller, name: str, to: float) -> View:
        """Give a study another priority. Raises as `show`, and if the caller may not, or it has ended."""
        self.submissions.check_priority(caller, to)
        study = self._live(caller, name)
        if study is None:
            over = await self.lanes.store.run(caller.user, lambda: self._stored(caller, name))
            raise BftrainerError(
                f"the study {over.name} has ended ({over.status}); nothing waits for it any more"
            )
        self.telemetry.ordered("study priority", caller.user, study=study.id, name=study.spec.name, to=to)
        return study_row(await self.studies.prioritise(study, to))

    def _live(self, caller: Caller, name: str) -> Study | None:
        """A study that has not ended, by number or name; of several with a name the caller's own."""
        seen = [s for s in self.studies.thread.snapshots.values() if caller.may_see(s.user)]
        found = [s for s in seen if name in (s.spec.name, str(s.id))]
        return next((s for s in found if s.user == caller.user), found[0] if found else None)

    def _stored(self, caller: Caller, name: str) -> StoredStudy:
        tables = self.store.studies
        found = tables.find(name, caller.user) or (tables.find(name) if caller.admin else None)
        if found is None:
            raise UnknownTrainerError(f"no study {name!r}; bftrainer study list shows those that there are")
        return found

    def _ended(self, caller: Caller, name: str) -> Study:
        kept = self._stored(caller, name)
        return loaded(kept, self.store.studies.trials(kept.id))

    def _live_trainers(self, study: Study) -> dict[int, tuple[int, int]]:
        """The nodes that each of its trainers holds, and how far that has come; of those that have some."""
        active, found = self.runner.state.active, {}
        for trial in study.trials.values():
            own = active.get(trial.trainer) if trial.trainer is not None else None
            if own is not None and own.nodes:
                latest = self.studies.journal.latest(own.id)
                found[own.id] = len(own.nodes), latest.samples if latest else 0
        return found
