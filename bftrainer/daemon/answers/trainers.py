"""Tells callers of their trainers, and admins of all."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from bftrainer.api.answers import ANSWER_BYTES, Answer
from bftrainer.api.callers import Caller
from bftrainer.api.errors import UnknownTrainerError
from bftrainer.api.listing import LEFT_OUT, NEXT, WAITING_LEFT_OUT, encoded, joined
from bftrainer.daemon.answers.outlooks import Outlooks
from bftrainer.daemon.answers.views.trainers import (
    OutlookView,
    RunningView,
    TrainerView,
    listed_view,
    running_view,
    trainer_view,
)
from bftrainer.daemon.index import Index
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.engine.queueing.waiting import Shortage
from bftrainer.engine.state import State
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.daemon import SEVERAL_OWNERS, UNKNOWN
from bftrainer.model.reports import Progress, StoredTrainer, TrainerSummary, whole
from bftrainer.model.text import duration
from bftrainer.model.trainer import Trainer, TrainerStatus
from bftrainer.ports import Clock, Launcher, Store

NAMED = 10
"""Users named, at most, who have a trainer of the name that was asked for."""
LISTED = 250
"""Trainers that wait in one answer of list, as a line takes most of a millisecond and others wait for their
turn meanwhile; the next one begins after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Trainers that have not ended: those that hold nodes, and some of those that wait; `left` more wait."""

    holding: Sequence[TrainerSummary]
    waiting: Sequence[TrainerSummary]
    left: int


@dataclass(frozen=True, kw_only=True)
class TrainersNow:
    """Trainers at one moment: the engine's state, and the workers of the requested ones, with their
    launchers' notes. `stored` and `latest` give what is known of a trainer's progress."""

    time: float
    state: State
    workers: Mapping[int, dict[str, str]]
    notes: Mapping[int, str]
    stored: Callable[[int], TrainerSummary | None]
    latest: Callable[[int], Progress | None]

    @cached_property
    def shortage(self) -> Shortage:
        """Return why those that wait do so."""
        return Shortage.of(self.state)

    @cached_property
    def outlooks(self) -> Outlooks:
        """Return when trainers will probably end."""

        def left(trainer: Trainer) -> int | None:
            found = self.latest(trainer.id) or self.stored(trainer.id)
            done, of = (found.samples, found.of) if found else (0, None)
            work = whole(trainer.spec.samples, of, done)
            return None if work is None else max(0, work - done)

        def rate(trainer: Trainer) -> float | None:
            latest = self.latest(trainer.id) if trainer.members else None
            return latest.rate if latest else None

        return Outlooks(
            time=self.time, state=self.state, shortage=lambda: self.shortage, left=left, rate=rate
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """Knows in memory what has not ended; reads the store, in a lane of its own, for what has."""

    clock: Clock
    store: Store
    index: Index
    lanes: Lanes
    journal: StoreJournal
    runner: Runner
    launcher: Launcher

    # from memory

    def holding(self, caller: Caller) -> Callable[[], list[TrainerView]]:
        """The trainers that hold nodes now and that the caller may see, in order of arrival: made when it is
        called, by any thread."""
        found = self._holding(owner_of(caller))
        moment = self.moment(found)
        return lambda: [self.view(t, moment) for t in found]

    def running(self, caller: Caller, most: int) -> tuple[list[RunningView], int]:
        """The first `most` trainers that run and that the caller may see, and how many more run."""
        active = self.runner.state.active
        found = [t for t in self._holding(owner_of(caller)) if active[t.id].members]
        first = found[:most]
        moment = self.moment(first)
        return [running_view(self.view(t, moment)) for t in first], len(found) - len(first)

    def counts(self, caller: Caller) -> dict[str, int]:
        """Count the trainers that the caller may see, by status."""
        user, state = owner_of(caller), self.runner.state
        found = Counter({status.value: count for status, count in self.index.count_ended(user).items()})
        if state.active or len(state.waiting):
            holding = [state.active[t.id].status.value for t in self._holding(user)]
            found.update(holding)
            found[TrainerStatus.WAITING.value] = self.index.count(user) - len(holding)
        else:  # until the engine goes on after a restart
            found.update(t.status.value for t in self.index.of(user))
        return {status.value: found[status.value] for status in TrainerStatus if found[status.value] > 0}

    def unfinished(self, caller: Caller, trainer: str) -> TrainerSummary | None:
        """The trainer that `find` finds, if it has not ended and memory alone says which it is."""
        named = self.index.named(caller.user, trainer)
        numbered = self.index.get(int(trainer)) if _is_number(trainer) else None
        if named is not None and numbered is None:
            return named
        return numbered if named is None and numbered and caller.may_see(numbered.user) else None

    def moment(self, trainers: Sequence[TrainerSummary]) -> TrainersNow:
        """Return these trainers as of now."""
        return TrainersNow(
            time=self.clock.now(),
            state=self.runner.state,
            workers={t.id: self.launcher.workers(t.id) for t in trainers},
            notes={t.id: self.launcher.note(t.id) for t in trainers},
            stored=self.index.get,
            latest=self.journal.latest,
        )

    def view(self, stored: TrainerSummary, moment: TrainersNow, *, with_best: bool = False) -> TrainerView:
        """A trainer's line in a list; `with_best` is for `Outlooks.of`. Any thread may call it."""
        view = self.view_now(stored, moment)
        view["ends_in_s"] = self.outlook(view, moment, with_best=with_best)
        return view

    def outlook(
        self, view: TrainerView, moment: TrainersNow, *, with_best: bool = False
    ) -> OutlookView | None:
        """Return when a trainer will probably end; None if it has ended, or has no amount of work."""
        unfinished = None if self.index.over(view["id"]) else moment.state.trainer(view["id"])
        return moment.outlooks.of(unfinished, view, with_best=with_best) if unfinished else None

    def view_now(self, stored: TrainerSummary, moment: TrainersNow, *, with_why: bool = True) -> TrainerView:
        """Return a trainer's line without its outlook; `with_why`: with why it waits. Any thread may call
        it."""
        over, unit = self.index.over(stored.id), moment.state.settings.unit
        if over is not None:
            return trainer_view(over, None, None, moment.workers.get(over.id, {}), unit)
        live, workers = moment.state.active.get(stored.id), moment.workers.get(stored.id, {})
        view = trainer_view(stored, live, self.journal.latest(stored.id), workers, unit)
        view["note"] = moment.notes.get(stored.id, "")
        if stored.id in moment.state.waiting:  # whatever the daemon before had stored
            view["status"] = TrainerStatus.WAITING.value
        unfinished = moment.state.trainer(stored.id)
        if with_why and unfinished is not None and not unfinished.nodes:
            view["reason"] = moment.shortage.why(unfinished, lambda t: _left(t, moment))
            view["remedy"] = moment.shortage.remedy(unfinished)
        if unfinished is not None:
            view["priority"] = unfinished.spec.priority
        return view

    def _holding(self, user: str | None) -> list[TrainerSummary]:
        known = (self.index.get(t.id) for t in self.runner.state.active.values() if t.nodes)
        return sorted((t for t in known if t and user in (None, t.user)), key=lambda t: t.id)

    def _page(self, user: str | None, after: int) -> Page:
        """Return a page of waiting trainers, from after the id `after` on."""
        holding = self._holding(user)
        ids = {t.id for t in holding}
        every = self.index.of(user)
        rest = every[bisect_right(every, after, key=lambda t: t.id) :]
        most = LISTED
        waiting = list(islice((t for t in rest if t.id not in ids), most))
        left = len(rest) - sum(id_ > after for id_ in ids) - len(waiting)
        return Page(holding=() if after else holding, waiting=waiting, left=left)

    # from the store

    async def listed(self, caller: Caller, ended: int, skip: int, after: int) -> Answer:
        """The trainers that the caller may see, in order of arrival.

        These are those that hold nodes, those that wait up to a bound, and `ended` of those that ended last.
        With `after`, only those that wait, from the next one on; with `skip`, only trainers that ended, those
        after the `skip` that ended last.

        Raises:
            BusyError, LateError: see `Lane.run`.
        """
        lane = self.lanes.store if ended else self.lanes.memory
        lane.check_place(caller.user)
        user = owner_of(caller)
        page = Page(holding=(), waiting=(), left=0) if skip else self._page(user, after)
        moment = self.moment((*page.holding, *page.waiting))
        total = self.index.count_ended(user).total()
        newest = () if skip else self.index.recent(user)

        def make() -> Answer:
            found = self.store.ended_summaries(ended, skip, user) if ended else []
            return self._answer(page, latest((*found, *newest), ended), moment, total - skip)

        return await lane.run(caller.user, make)

    def _answer(self, page: Page, ended: Sequence[TrainerSummary], moment: TrainersNow, total: int) -> Answer:
        """The answer with these trainers, as many as fit; `total` have ended, those of pages before aside."""
        most = ANSWER_BYTES // 3

        def lines(some: Sequence[TrainerSummary], most: float) -> list[tuple[int, bytes]]:
            texts = encoded((listed_view(self.view(t, moment)) for t in some), most)
            return [(t.id, text) for t, text in zip(some, texts, strict=False)]

        held, waiting, over = (lines(some, most) for some in (page.holding, page.waiting, ended))
        left = page.left + len(page.holding) + len(page.waiting) - len(held) - len(waiting)
        headers = {LEFT_OUT: str(max(0, total - len(over))), WAITING_LEFT_OUT: str(left)}
        if left and waiting:
            headers[NEXT] = str(waiting[-1][0])
        return Answer(joined(text for _, text in sorted([*held, *waiting, *over])), headers)

    def find(self, caller: Caller, trainer: str) -> StoredTrainer:
        """By number, or by name: the latest of that name, of the caller's own if there is one.

        Reads the store: to be called in a lane.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: several other users have one of this name.
        """
        latest = {user: id_ for user, id_ in self.store.latest_named(trainer).items() if caller.may_see(user)}
        numbered = self.store.trainer(int(trainer)) if _is_number(trainer) else None
        if numbered is not None and caller.may_see(numbered.spec.user):
            owner = numbered.spec.user
            latest[owner] = max(numbered.id, latest.get(owner, 0))
        if caller.user in latest:
            latest = {caller.user: latest[caller.user]}
        if len(latest) > 1:
            first = sorted((id_, user) for user, id_ in latest.items())[-NAMED:]
            which = ", ".join(f"{id_} ({user})" for id_, user in first)
            raise BftrainerError(SEVERAL_OWNERS.say(kind="trainer", name=trainer, which=which))
        found = next((self.store.trainer(id_) for id_ in latest.values()), None)
        if found is None:
            raise UnknownTrainerError(UNKNOWN.say(kind="trainer", name=trainer, command="list"))
        return found


def latest(trainers: Sequence[TrainerSummary], count: int) -> list[TrainerSummary]:
    """The `count` trainers that ended last, each once; the latest end comes first."""
    once = {t.id: t for t in trainers}
    return sorted(once.values(), key=lambda t: (t.ended_at or 0.0, t.id), reverse=True)[:count]


def _left(trainer: Trainer, moment: TrainersNow) -> str:
    """Return how long a trainer will probably keep its nodes, in words; empty if that is not known."""
    likely = moment.outlooks.ends_in_s(trainer)
    return f"about {duration(likely)} left" if likely else ""


def owner_of(caller: Caller) -> str | None:
    """The user whose trainers the caller may see; None: those of all."""
    return None if caller.admin else caller.user


def _is_number(text: str) -> bool:
    """Return whether it can be an id: SQLite's go to 2**63."""
    return text.isascii() and text.isdecimal() and len(text) < 19
