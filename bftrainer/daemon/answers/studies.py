"""Answers callers on studies: implements `api.study_routes.StudyService`.

Callers see and order studies of their own, admins those of everybody; others' are reported as not found.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bftrainer.api.answers import ANSWER_BYTES, Answer
from bftrainer.api.callers import Caller, NotAllowedError
from bftrainer.api.errors import LateError, UnknownTrainerError
from bftrainer.api.listing import LEFT_OUT, NEXT, encoded, joined
from bftrainer.daemon.answers.submissions import Submissions
from bftrainer.daemon.answers.trainers import NAMED, owner_of
from bftrainer.daemon.answers.views.studies import (
    LiveTrainer,
    Now,
    TrialPart,
    TrialTexts,
    View,
    stored_row,
    study_row,
    study_view,
)
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.storage.journal import ANSWER_S
from bftrainer.daemon.studies.studies import Studies
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.daemon import NOT_RUN_HERE, ORDER_TAKEN, OVER, SEVERAL_OWNERS, UNKNOWN
from bftrainer.model.studies import StoredStudy
from bftrainer.model.trainer import Trainer
from bftrainer.ports import Store
from bftrainer.search import events
from bftrainer.search.rows import loaded
from bftrainer.search.study import StudySpec
from bftrainer.search.trial import Study, StudyFile, Trial, TrialStatus
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

ORDERS: dict[str, type[events.PauseStudy] | type[events.ResumeStudy] | type[events.Cancel]] = {
    "pause": events.PauseStudy,
    "resume": events.ResumeStudy,
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
    """Texts of unfinished studies; the lane `memory` makes these answers."""
    cancelled: set[int] = field(default_factory=set)
    """Unfinished studies that somebody has cancelled."""

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> View:
        """Accept the study file `text`, of a file `name` in the folder `base`.

        Raises:
            NotAllowedError: the caller's trainers are not run here.
            TooManyError, FullError: the caller, or all users together, have submitted too much.
            BftrainerError: the study is wrong, or an unfinished one of the caller has its name.
        """
        if self.settings.current.mode == "site" and caller.uid in (0, os.geteuid()):
            raise NotAllowedError(NOT_RUN_HERE.say(user=caller.user))
        with self.submissions.place(caller):
            taken = self.studies.taken(caller.user)
            spec = await self.submissions.read_study(caller, text, name, base, taken)
            source = StudyFile(text=text, file=name, base=base)
            older = None
            if spec.warm_start is not None:
                older = await self.lanes.store.run(caller.user, lambda: self._known(caller, spec))
            study = await self.studies.submit(caller.user, spec, source, older)
            storage = self.studies.mirrors.view(study.id, spec.name, spec.storage)
            return study_row(study) | {"note": storage["error"] if storage else ""}

    async def listed(self, caller: Caller, ended: int) -> Answer:
        """The studies that the caller may see: those that run, and the last `ended` that have ended."""
        user = owner_of(caller)
        own = [s for s in self.studies.thread.snapshots.values() if user in (None, s.user)]
        moved = {study.id: self.studies.runs.moved(study.id) for study in own}
        active = self.runner.state.active

        def make() -> Answer:
            over = [stored_row(study) for study in self.store.studies.ended(ended, user)] if ended else []
            known = {study.id for study in own}
            rows = [row for row in over if row["id"] not in known] + [
                study_row(study, moved[study.id], self._live_trainers(study, active)) for study in own
            ]
            newest = sorted(rows, key=lambda row: int(row["id"]), reverse=True)
            texts = encoded(newest, ANSWER_BYTES)
            return Answer(joined(reversed(texts)), {LEFT_OUT: str(len(rows) - len(texts))})

        return await self.lanes.store.run(caller.user, make)

    async def show(self, caller: Caller, name: str, points: int, most: int | None, after: int = -1) -> Answer:
        """All about a study and its trials, each with the last `points` of its course; of many trials `most`.
        With `after`, only trials with higher numbers. Where the answer is full, its header NEXT has the
        `after` of the next one.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: studies of several users have this name.
        """
        study = self._live(caller, name)
        active, unit = self.runner.state.active, self.runner.state.settings.unit
        now = Now(unit)
        if study is not None:
            own, forecast = self.studies.runs, self.studies.forecasts.view(study)
            now = Now(unit, forecast, own.moved(study.id), own.learnt(study.id))

        def make() -> Answer:
            found = study or self._ended(caller, name)
            live = {} if study is None else self._live_trainers(study, active)
            texts = self.texts if study is not None else TrialTexts()
            part = TrialPart(most, after, ANSWER_BYTES)
            trials = texts.of(found, live, points, part)
            last = max(trials, default=after)
            full = most is None and any(number > last for number in found.trials)
            storage = self.studies.mirrors.view(found.id, found.spec.name, found.spec.storage)
            more = {"storage": storage, "folder": str(self.studies.runs.folder(found))}
            head = encoded([study_view(found, live, now) | more])[0]
            body = head[:-1] + b', "table": ' + joined(trials.values()) + b"}"
            return Answer(body, {NEXT: str(last)} if full else {})

        lane = self.lanes.memory if study is not None else self.lanes.store
        return await lane.run(caller.user, make)

    async def order(self, caller: Caller, name: str, order: str) -> Answer:
        """Pause a study, let it go on, or end it. Idempotent: to end one that has ended does nothing, and the
        answer's `note` says so. Raises as `show`, and for other orders if it has ended."""
        study = self._live(caller, name)
        if order == "cancel" and study is not None and study.id not in self.cancelled:
            self.cancelled.intersection_update(self.studies.thread.snapshots)
            self.cancelled.add(study.id)  # to end one is always possible, again and again is not
        else:  # its trials' trainers end and begin: that costs what submitting them does
            self.submissions.check_rate(caller)
        if study is None and order == "cancel":
            over = await self._over(caller, name)
            note = f"{_has_ended(over)} already; its results and checkpoints stay"
            row = stored_row(over) | {"note": note}
            return await self.lanes.store.run(caller.user, lambda: Answer(encoded([row])[0]))
        study = study or await self._running(caller, name)
        self.telemetry.ordered(f"study {order}", caller.user, study=study.id, name=study.spec.name)
        return await self._row(await self.studies.order(study, ORDERS[order]()))

    async def add(self, caller: Caller, name: str, trials: int, points: Sequence[object]) -> Answer:
        """Add trials to a study, and known points that its next ones try. Raises as `show`, and if it has
        ended, or would be larger than may be, or a point is none of its space."""
        self.submissions.check_rate(caller)
        study = await self._running(caller, name)
        taken = self.studies.taken(study.user, study.id)
        event = await self.submissions.read_addition(caller, study, trials, points, taken)
        self.telemetry.ordered("study add", caller.user, study=study.id, name=study.spec.name)
        return await self._row(await self.studies.order(study, event))

    async def _row(self, study: Study) -> Answer:
        """A study's row, made in the studies' thread: it counts all trials."""
        made = self.studies.thread.fill(study, lambda: Answer(encoded([study_row(study)])[0]))
        done, _ = await asyncio.wait([told := asyncio.wrap_future(made)], timeout=ANSWER_S)
        if not done:
            raise LateError(ORDER_TAKEN.say(id=study.id))
        return told.result()

    def _known(self, caller: Caller, spec: StudySpec) -> tuple[int, tuple[Trial, ...]]:
        """The number of the caller's study from which another one learns, and the trials that it takes."""
        wanted = spec.warm_start or ""
        own = (s for s in self.studies.thread.snapshots.values() if s.user == caller.user)
        live = next((s for s in own if wanted in (s.spec.name, str(s.id))), None)
        try:
            found = live or self._ended(replace(caller, admin=False), wanted)
            return found.id, found.known_to(spec)
        except UnknownTrainerError as error:  # the text is wrong, not the address
            raise BftrainerError(f"warm_start: {error}") from error
        except ValueError as error:
            raise BftrainerError(str(error)) from error

    async def prioritise(self, caller: Caller, name: str, to: float) -> Answer:
        """Give a study another priority. Raises as `show`, and if the caller may not, or it has ended."""
        self.submissions.check_priority(caller, to)
        study = await self._running(caller, name)
        self.telemetry.ordered("study priority", caller.user, study=study.id, name=study.spec.name, to=to)
        return await self._row(await self.studies.prioritise(study, to))

    async def _running(self, caller: Caller, name: str) -> Study:
        """A study that has not ended, as `_live`.

        Raises:
            BftrainerError: it has ended.
            UnknownTrainerError: there is none that the caller may see.
        """
        study = self._live(caller, name)
        if study is None:
            over = await self._over(caller, name)
            option, gain = f"warm_start: {over.name}", "it learns from this one's trials"
            raise BftrainerError(
                OVER.say(what=f"the study {over.name}", how=over.status, option=option, gain=gain)
            )
        return study

    async def _over(self, caller: Caller, name: str) -> StoredStudy:
        """A study that has ended, from the store's thread. Raises `UnknownTrainerError` if there is none."""
        return await self.lanes.store.run(caller.user, lambda: self._stored(caller, name))

    def _live(self, caller: Caller, name: str) -> Study | None:
        """A study that has not ended, by number or name; of several with a name the caller's own.

        Raises:
            BftrainerError: several other users have one of this name.
        """
        seen = [s for s in self.studies.thread.snapshots.values() if caller.may_see(s.user)]
        found = [s for s in seen if name in (s.spec.name, str(s.id))]
        own = next((s for s in found if s.user == caller.user), None)
        if own is None and len(found) > 1:
            which = ", ".join(f"{s.id} ({s.user})" for s in found[-NAMED:])
            raise BftrainerError(SEVERAL_OWNERS.say(kind="study", name=name, which=which))
        return own or (found[0] if found else None)

    def _stored(self, caller: Caller, name: str) -> StoredStudy:
        tables = self.store.studies
        found = tables.find(name, caller.user) or (tables.find(name) if caller.admin else None)
        if found is None:
            raise UnknownTrainerError(UNKNOWN.say(kind="study", name=name, command="study list"))
        return found

    def _ended(self, caller: Caller, name: str) -> Study:
        kept = self._stored(caller, name)
        return loaded(kept, self.store.studies.trials(kept.id))

    def _live_trainers(self, study: Study, active: Mapping[int, Trainer]) -> dict[int, LiveTrainer]:
        """The trainers of its trials that have not ended, from where the list of trainers has them. A study
        may have very many trials: this is for the lanes' threads."""
        found = {}
        for trial in study.trials.values():
            if trial.status is not TrialStatus.RUNNING or trial.trainer is None:
                continue
            stored = self.studies.index.get(trial.trainer)
            if stored is not None:
                own, latest = active.get(stored.id), self.studies.journal.latest(stored.id)
                nodes = len(own.nodes) if own else 0
                found[stored.id] = LiveTrainer(nodes, (latest or stored).samples, waits=not nodes)
        return found


def _has_ended(study: StoredStudy) -> str:
    return f"the study {study.name} has ended ({study.status})"
