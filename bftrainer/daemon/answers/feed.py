"""Feeds readers with changes of trainers, nodes and studies, from one picture that serves all readers.

While there are readers, the picture is rebuilt again and again, in a thread of its own, which gives way to
the event loop. The work is bounded by time, not by size: it takes a share of a core at most, so on a large
machine changes come less often. Readers get a new picture's nodes before the trainers are looked at. Each
reader gets what its user may know.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bftrainer.api.callers import Caller
from bftrainer.api.listing import dumps
from bftrainer.api.stream import OVER, SHARED, FeedReader, HasState
from bftrainer.api.transport.admission import BusyError
from bftrainer.daemon.answers.trainers import Trainers, TrainersNow
from bftrainer.daemon.answers.views.changes import FeedLine, private
from bftrainer.daemon.answers.views.feed import (
    NodeFacts,
    node_facts,
    node_line,
    status_of_feed,
)
from bftrainer.daemon.answers.views.picture import (
    FeedChange,
    FeedPicture,
    change_event,
    state_begin,
    state_event,
    state_rest,
)
from bftrainer.daemon.answers.views.pool import StatusView
from bftrainer.daemon.answers.views.studies import study_row
from bftrainer.daemon.answers.views.trainers import TrainerView, listed_view
from bftrainer.daemon.lanes import fair_thread
from bftrainer.daemon.studies.studies import Studies
from bftrainer.messages.commands.daemon import MOST_OF_A_USER, MOST_OF_ALL
from bftrainer.model.machine import Node
from bftrainer.model.reports import TrainerSummary
from bftrainer.nodes.lifecycle import NodeRecord
from bftrainer.nodes.state import NodesState
from bftrainer.search.trial import Study
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

PERIOD_S = 0.5
"""Seconds, at least, between two changes."""
CORE_SHARE = 0.008
"""Share of a core that making the picture takes at most, however large the machine is. To send it, and
the garbage of both, come on top: together it is to be less than 0.02."""
READERS, READERS_OF_USER = 128, 16
"""Streams at once, at most: each has a connection, and up to 1 MB waits for it. At the bound, the user with
the most gives way to one with fewer."""
KEPT_S = 300.0
"""The picture is kept for this time (s) after the last reader has gone: a reloaded page gets it."""
SWEPT = 200
"""Waiting trainers that are looked at each time: their reasons change slowly."""
PUT_AT_ONCE = 20
"""Readers that are served in one turn of the event loop."""


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that equals only itself."""

    thing: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The daemon's knowledge at one moment, taken together in one turn of the event loop."""

    now: TrainersNow
    keys: dict[int, TrainerSummary]
    some: Sequence[TrainerSummary]
    timed: frozenset[int]
    seen: Sequence[Node]
    lives: dict[str, NodeRecord]
    why_not: Callable[[Node, bool], str]
    studies: dict[int, tuple[Study, float]]
    decisions: int


@dataclass(slots=True, kw_only=True)
class LiveFeed:
    """Implements `api.stream.Feed`. Belongs to the event loop; it works only for readers."""

    trainers: Trainers
    nodes: NodesState
    studies: Studies
    totals: Callable[[Caller], StatusView]
    telemetry: Telemetry
    _readers: dict[FeedReader, None] = field(default_factory=dict)
    _picture: FeedPicture = field(default_factory=FeedPicture)
    _joined: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _swept: int = 0
    _held: frozenset[int] = frozenset()

    def join(self, caller: Caller, parts: tuple[str, ...]) -> FeedReader:
        """See `api.stream.Feed`."""
        of_user_ = Counter(reader.caller.user for reader in self._readers)[caller.user]
        if of_user_ >= READERS_OF_USER:
            self.telemetry.bounded("max_streams_per_user", caller.user)
            raise BusyError(
                MOST_OF_A_USER.say(count=of_user_, what="streams of yours are open", setting=""), 429
            )
        open_ = Counter(reader.caller.user for reader in self._readers if not reader.ended)
        if open_.total() >= READERS:
            self.telemetry.bounded("max_streams", caller.user)
            user, most = open_.most_common(1)[0]
            if most <= of_user_ + 1:
                raise BusyError(MOST_OF_ALL.say(count=READERS, what="streams are open", setting=""), 503)
            next(r for r in self._readers if r.caller.user == user and not r.ended).end(SHARED)
        reader = FeedReader(caller, parts)
        self._readers[reader] = None
        self._joined.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="feed")
        return reader

    def leave(self, reader: FeedReader) -> None:
        """See `api.stream.Feed`."""
        self._readers.pop(reader, None)
        if not self._readers:  # that ends the work
            self._joined.set()

    def slow(self, reader: FeedReader) -> None:
        """See `api.stream.Feed`."""
        self.telemetry.bounded("slow_stream", reader.caller.user)

    def begin_again(self) -> None:
        """Make all readers reconnect: what they may see may differ."""
        for reader in self._readers:
            reader.end(OVER)

    async def _run(self) -> None:
        """Tell readers of changes until there are none."""
        thread = fair_thread("feed", self.telemetry)
        try:
            due = 0.0
            while self._readers or await self._comes():
                self._joined.clear()
                fresh, own = (began := time.monotonic()) >= due, time.thread_time()
                moment = self._moment() if fresh else None
                own = time.thread_time() - own  # the event loop's part of it
                status = await self._status()
                new = moment is not None and self._picture.is_new
                if moment is not None and new:
                    told = await thread.run("", partial(self._begun, moment, status, self._open()))
                    await self._tell(told, more=True)
                made = partial(self._made, moment, status, self._open(), begun=new)
                told, took_s = await thread.run("", made)
                await self._tell(told)
                if fresh:  # what is made once does not count
                    due = began + max(PERIOD_S, 0.0 if new else (own + took_s) / CORE_SHARE)
                await self._pause(due)
        except Exception:
            log.exception("the feed of changes fails; its readers begin again")
            self.telemetry.happened("reads", "the feed of changes failed; see the log")
            self.begin_again()
            self._picture = FeedPicture(seq=self._picture.seq)
        finally:
            thread.close()

    async def _comes(self) -> bool:
        """Return whether a reader comes in time for the picture that there is; without, it is forgotten."""
        self._joined.clear()
        try:
            async with asyncio.timeout(KEPT_S):
                await self._joined.wait()
        except TimeoutError:
            self._picture = FeedPicture(seq=self._picture.seq)
        return bool(self._readers)

    async def _pause(self, until: float) -> None:
        """Wait until a picture is due, or a reader comes that has none, but for a moment in any case."""
        await asyncio.sleep(PERIOD_S / 10)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._joined.wait()
        except TimeoutError:
            return

    def _open(self) -> list[tuple[FeedReader, HasState]]:
        """Return the readers that go on, each with what it was given up to now."""
        return [(reader, reader.given) for reader in self._readers if not reader.ended]

    async def _tell(self, told: dict[FeedReader, bytes], *, more: bool = False) -> None:
        for place, (reader, text) in enumerate(told.items(), start=1):
            reader.put(text, more=more)
            if place % PUT_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _status(self) -> dict[str, bytes]:
        """Return the status for each caller, a caller in each turn of the event loop."""
        found = {}
        for told_as, caller in {reader.told_as: reader.caller for reader in self._readers}.items():
            found[told_as] = dumps(status_of_feed(self.totals(caller))).encode()
            await asyncio.sleep(0)
        return found

    def _moment(self) -> _Moment:
        index, state = self.trainers.index, self.trainers.runner.state
        unfinished = index.of(None)
        active = state.active
        holding = {t.id: t for t in unfinished if (own := active.get(t.id)) is not None and own.nodes}
        self._swept = self._swept if self._swept < len(unfinished) else 0
        slice_ = unfinished[self._swept : self._swept + SWEPT]
        self._swept += SWEPT
        keys = {t.id: t for t in index.recent(None)} | {t.id: t for t in unfinished}
        let_go = {id_: keys[id_] for id_ in self._held if id_ in keys}
        self._held = frozenset(holding)
        asked = {**let_go, **{t.id: t for t in slice_}, **holding}
        new = {id_: t for id_, t in keys.items() if id_ not in self._picture.trainers.lines}
        over = {t.id: t for t in index.recent(None)}
        runs = self.studies.runs
        return _Moment(
            now=self.trainers.moment(list(asked.values())),
            keys=keys,
            some=list({**over, **new, **asked}.values()),
            timed=frozenset(asked),
            seen=self.nodes.seen,
            lives=dict(self.nodes.records.nodes),
            why_not=self.nodes.why_not(),
            studies={
                study.id: (study, runs.moved(study.id)) for study in self.studies.thread.snapshots.values()
            },
            decisions=self.trainers.runner.stored,
        )

    # in the thread

    def _begun(
        self, moment: _Moment, status: dict[str, bytes], readers: Sequence[tuple[FeedReader, HasState]]
    ) -> dict[FeedReader, bytes]:
        """Begin a new picture; return what can be told of its state before its trainers are looked at."""
        picture = self._picture
        picture.seq, picture.is_new = picture.seq + 1, False
        self._looked(moment, status)
        new = [reader for reader, given in readers if given is HasState.NOTHING]
        return _for_each(new, partial(state_begin, picture))

    def _made(
        self,
        moment: _Moment | None,
        status: dict[str, bytes],
        readers: Sequence[tuple[FeedReader, HasState]],
        *,
        begun: bool,
    ) -> tuple[dict[FeedReader, bytes], float]:
        """Return each reader's message now, and the processor time (s) that the picture took. Of one that
        has `begun`, the trainers alone are to be looked at: no reader has a picture before it."""
        began, picture = time.thread_time(), self._picture
        told: dict[FeedReader, bytes] = {}
        of = {given: [reader for reader, has in readers if has is given] for given in HasState}
        if moment is not None:
            trainers = picture.trainers.update(moment.keys, self._trainer_rows(moment))
            changed = None if begun else replace(self._looked(moment, status), trainers=trainers)
            took_s = time.thread_time() - began
            if changed and of[HasState.ALL]:
                picture.seq += 1
                told = _for_each(of[HasState.ALL], partial(change_event, picture, changed))
        else:
            picture.status |= {name: text for name, text in status.items() if name not in picture.status}
            took_s = 0.0
        told |= _for_each(of[HasState.PART], partial(state_rest, picture))
        told |= _for_each(of[HasState.NOTHING], partial(state_event, picture))
        return told, took_s

    def _looked(self, moment: _Moment, status: dict[str, bytes]) -> FeedChange:
        """Look at all but the trainers."""
        picture, now = self._picture, moment.now
        holders = {node: t for t in now.state.active.values() for node in t.nodes}
        pool = now.state.pool

        def facts(node: Node) -> NodeFacts:
            name, why = node.name, node.why or moment.why_not(node, False)
            details = why if why == node.why else moment.why_not(node, True)
            return node_facts(node, moment.lives.get(name), holders.get(name), name in pool, why, details)

        known = {name for name, text in status.items() if picture.status.get(name) != text}
        changed = FeedChange(
            trainers={},
            nodes=picture.nodes.update(
                {node.name: None for node in moment.seen},
                ((node.name, own := facts(node), partial(node_line, own)) for node in moment.seen),
            ),
            studies=picture.studies.update(moment.studies, _study_rows(moment)),
            status=frozenset(known),
            decisions=moment.decisions != picture.decisions,
        )
        picture.status, picture.decisions = status, moment.decisions
        return changed

    def _trainer_rows(self, moment: _Moment) -> Iterator[tuple[int, object, Callable[[], FeedLine]]]:
        """Trainers without when they will end, which moves at every moment: their rows have it as of now.
        Those that wait get it, and why they wait, when they are swept: to find that out takes long."""
        for summary in moment.some:
            timed = summary.id in moment.timed
            view = listed_view(self.trainers.view_now(summary, moment.now, with_why=timed))
            yield summary.id, (view, timed), partial(self._trainer_line, view, moment.now, timed)

    def _trainer_line(self, view: TrainerView, now: TrainersNow, timed: bool) -> FeedLine:
        ends_in_s = self.trainers.outlook(view, now) if timed else None
        return private(view["user"], {**view, "ends_in_s": ends_in_s})


def _study_rows(moment: _Moment) -> Iterator[tuple[int, object, Callable[[], FeedLine]]]:
    for id_, (study, moved) in moment.studies.items():
        yield id_, (_Same(study), moved), partial(_study_line, study, moved)


def _study_line(study: Study, moved: float) -> FeedLine:
    return private(study.user, study_row(study, moved))


def _for_each(
    readers: Sequence[FeedReader], make: Callable[[str | None, str, tuple[str, ...]], bytes]
) -> dict[FeedReader, bytes]:
    """Return each reader's message, made once for all that get the same."""
    made: dict[tuple[str, tuple[str, ...]], bytes] = {}
    found = {}
    for reader in readers:
        key = (reader.told_as, reader.parts)
        if key not in made:
            made[key] = make(reader.user, *key)
        if made[key]:
            found[reader] = made[key]
    return found
