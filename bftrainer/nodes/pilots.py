"""The pilots that hold nodes for us: submitted and ended as the nodes' records say.

A node is held while a trainer is to run on it, by a pilot of the user as whom the trainer runs. A submission
is slow and may fail, and its answer may get lost; so what counts in the end is what the scheduler lists. A
pilot that is listed and not known is cancelled; a known one that is not listed is gone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from weakref import WeakValueDictionary

from bftrainer.errors import CrowdedError, KeptError, NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import HELD, NodePhase, NodeRecord, Records
from bftrainer.nodes.quarantine import Quarantine, Refusals
from bftrainer.ports import Clock, Scheduler
from bftrainer.wire import seal

AT_ONCE = 8
"""Submissions under way at a time, at most."""
OF_ONE_USER = 2
"""Those of one user, at most: they run as that user, which can stop them."""
SOON_S = 0.2
"""Seconds until a failed cancellation of our pilot is retried; `SOON_MORE` is the factor for every further
try, `MAX_SOON_S` the bound: a main job may wait for its node."""
SOON_MORE = 1.2
MAX_SOON_S = 1.0


def submission_turns(
    missing: Mapping[str, str], taken: Mapping[str, int], per_minute: int, users: Collection[str]
) -> list[str]:
    """The nodes for which pilots are submitted now, of `missing` (node -> user). Pure.

    `taken` has how many each user had submitted within the last minute, of `per_minute` for all. Users take
    turns. As long as several `users` have trainers, one has half of the submissions at most, so that another
    finds some left.
    """
    most = max(1, per_minute // 2) if len(users) > 1 else per_minute
    own: defaultdict[str, list[str]] = defaultdict(list)
    for node, user in missing.items():
        if taken.get(user, 0) + len(own[user]) < most:
            own[user].append(node)
    turns = [node for turn in zip_longest(*own.values()) for node in turn if node is not None]
    return turns[: max(0, per_minute - sum(taken.values()))]


@dataclass(slots=True)
class Pilots:
    """Submits and cancels pilots, and has the `records` of all nodes, which others of this folder change as
    well. Only `order`, `cancel` and `end` wait for the scheduler.

    `connected` says whether a node's agent is, `tell` is called with the fate of pilots. `start_s` is how
    long an agent may take until it connects, `spare_s` how long a pilot is kept that no trainer needs,
    `per_minute` the most submissions in a minute.
    """

    scheduler: Scheduler
    key: bytes
    clock: Clock
    connected: Callable[[str], bool]
    tell: Callable[[str, Iterable[Pilot], str], None]
    works: Callable[[str], None]  # whether pilots can be submitted: "", or why not
    start_s: float
    spare_s: float
    per_minute: int
    quarantine: Quarantine
    records: Records = field(default_factory=Records)  # of all nodes, for the whole folder
    _submitted: deque[tuple[float, str]] = field(
        default_factory=deque
    )  # when and for which user, within the last minute
    _everywhere: Refusals = field(default_factory=Refusals)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _turns: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)

    def secret_of(self, tag: str) -> str:
        """The secret of the pilot with this tag."""
        return seal.of_pilot(self.key, tag)

    @property
    def held(self) -> Mapping[str, NodeRecord]:
        """The nodes with pilots that are ours, or are being given back."""
        return {name: self.records.nodes[name] for name in self.records.pilots}

    def known(self, node: str, tag: str) -> Pilot | None:
        """The pilot that an agent claims to be in; None if we have no such pilot there."""
        pilot = self.records.pilots.get(node)
        return pilot if pilot is not None and pilot.tag == tag else None

    def runs_as(self, node: str, user: str) -> bool:
        """Return whether the pilot on a node is this user's."""
        pilot = self.records.pilots.get(node)
        return pilot is not None and pilot.user == user

    def adopt(self, pilot: Pilot) -> None:
        """Take over a pilot that an earlier daemon submitted."""
        self.records = lifecycle.adopted(self.records, pilot, self.clock.now())

    def take_over(self, listed: Collection[Pilot]) -> list[Pilot]:
        """Adopt the pilots that run, one on each node; returns the others, which must go.

        Whether their nodes stay ours is for later polls to say: a scheduler that was restarted as well does
        not know its nodes yet, and trainers that must go are to have a moment for it.
        """
        strays = []
        for pilot in listed:
            if pilot.node not in self.records.pilots and not pilot.pending:
                self.adopt(pilot)
            else:
                strays.append(pilot)
        return strays

    def reports(self, node: str) -> None:
        """A node's agent has connected: its pilot runs, and earlier refusals there no longer count."""
        self.records = lifecycle.reported(self.records, node, self.clock.now())
        self.quarantine.reports(node, self.records.pilots[node].user)

    def ends(self, node: str) -> bool:
        """A pilot has ended though its node is ours. One that does so soon, again and again, is believed as
        often; but its user gets new pilots there ever more rarely. Returns whether it is such a one."""
        if node not in self.records.pilots:
            return False
        return self.quarantine.ended(node, self.records.pilots[node].user, self.lived_s(node))

    def lived_s(self, node: str) -> float:
        """For how long a node's pilot has been there."""
        return self.clock.now() - self.records.nodes[node].answered

    def fails(self, node: str, reason: str) -> None:
        """Submit no pilots of this user for a node for a while."""
        if node in self.records.pilots:
            self.quarantine.fails(node, self.records.pilots[node].user, reason)

    # what is to be done

    def to_cancel(self, wanted: Mapping[str, str], busy: Callable[[str], bool]) -> list[str]:
        """The nodes whose pilots can go: no trainer has needed them for `spare_s`, or another user's does."""
        now = self.clock.now()
        self.records = lifecycle.needed(self.records, wanted, now)
        return [
            node
            for node, one in self.held.items()
            if one.phase in HELD
            and one.unused is not None
            and (node in wanted or now - one.unused >= self.spare_s)
            and not busy(node)
        ]

    def to_submit(self, wanted: Mapping[str, str]) -> list[Pilot]:
        """The pilots to submit now, within `per_minute`; `wanted` is node -> user."""
        now = self.clock.now()
        while self._submitted and now - self._submitted[0][0] >= 60.0:
            self._submitted.popleft()
        if self._everywhere.until > now:
            return []
        barred = self.quarantine.nodes()
        missing = {
            node: user
            for node, user in sorted(wanted.items())
            if node in self.records.nodes
            and self.records.nodes[node].phase is NodePhase.FREE
            and node not in barred
            and self.quarantine.allows(node, user)
        }
        taken = Counter(user for _, user in self._submitted)
        others = self.quarantine.users() | frozenset(wanted.values())
        chosen = submission_turns(missing, taken, self.per_minute, others)
        return [Pilot(tag=uuid.uuid4().hex, node=node, user=wanted[node]) for node in chosen]

    async def order(self, pilots: Iterable[Pilot], limit_s: Callable[[str], float | None]) -> list[str]:
        """Submit pilots, several at a time; `limit_s` says for how long a node's may be there.

        Returns the nodes whose pilots were refused.
        """
        now = self.clock.now()
        self.records, submit = lifecycle.ordered(self.records, pilots, now)
        self._submitted.extend((now, pilot.user) for pilot in submit.pilots)
        refused = await asyncio.gather(*(self._submit(pilot, limit_s) for pilot in submit.pilots))
        return [pilot.node for pilot, gone in zip(submit.pilots, refused, strict=True) if gone]

    async def _submit(self, pilot: Pilot, limit_s: Callable[[str], float | None]) -> bool:
        """Submit one pilot when it is its turn; returns whether it was refused."""
        refused = False
        own = self._turns.setdefault(pilot.user, asyncio.Semaphore(OF_ONE_USER if pilot.user else AT_ONCE))
        async with own, self._turn:
            if self.known(pilot.node, pilot.tag) is None:
                return False  # no longer wanted
            try:
                await self.scheduler.submit(pilot, self.secret_of(pilot.tag), limit_s(pilot.node))
                self._everywhere = Refusals()
                self.quarantine.accepted()
                self.works("")
                self.tell("submitted", [pilot], "")
            except UnsureError as error:
                self.tell("unsure", [pilot], str(error))
                self._unanswered(pilot.user, error)
            except SchedulerError as error:
                self.tell("refused", [pilot], str(error))
                self._refused(pilot, error)
                refused = self.known(pilot.node, pilot.tag) is not None
                self.records = lifecycle.refused(self.records, pilot, self.clock.now())
        self.records = lifecycle.answered(self.records, pilot, self.clock.now())
        known = self.known(pilot.node, pilot.tag) is not None
        if not known and not refused and not self.records.awaits(pilot.tag):
            await self.cancel([pilot])  # it was let go while it was submitted
        return refused

    def _unanswered(self, user: str, error: UnsureError) -> None:
        """A submission was not answered. It ran as its user, which may have stopped it: others go on. What
        it printed may be forged, so a scheduler that takes no jobs spares this user alone."""
        full, reason = isinstance(error, CrowdedError), str(error)
        if user:
            (self.quarantine.rest if full else self.quarantine.bar)(user, reason)
        else:
            now, found = self.clock.now(), self._everywhere
            self._everywhere = found.as_all(now, reason) if full else found.more(now, reason)

    def _refused(self, pilot: Pilot, error: SchedulerError) -> None:
        """A submission failed: for its node, its user, or, if it was the daemon's own, everywhere."""
        reason = str(error)
        if isinstance(error, NoRoomError):
            self.quarantine.node_fails(pilot.node, reason)
        elif failed := self.quarantine.refused(pilot.node, pilot.user, reason):
            if self.quarantine.users() <= failed:
                self.works(reason)
            if "" in failed:
                self._everywhere = self._everywhere.more(self.clock.now(), reason)

    async def cancel(self, pilots: Collection[Pilot]) -> None:
        """Cancel pilots. While they stay listed, polls have them cancelled again, less and less often: a job
        that only looks like a pilot may be one that we cannot end."""
        if pilots and (why := await self._cancel(pilots)):
            self.tell("cancel_failed", pilots, why)

    async def end(self, pilots: Collection[Pilot]) -> None:
        """Cancel pilots that were ours. While that fails they are tried again soon, as long as the scheduler
        lists them: a main job may wait. Users wait for no others, as each can hold up what runs as it."""
        users = sorted({pilot.user for pilot in pilots})
        await asyncio.gather(*(self._end([p for p in pilots if p.user == user]) for user in users))

    async def _end(self, pilots: Collection[Pilot]) -> None:
        tries, wait_s = 0, SOON_S
        while pilots and (why := await self._cancel(pilots)):
            tries += 1
            if tries & (tries - 1) == 0:  # ever more rarely: 1, 2, 4, 8, ...
                self.tell("cancel_failed", pilots, why)
            await asyncio.sleep(wait_s)
            wait_s = min(SOON_MORE * wait_s, MAX_SOON_S)
            pilots = [pilot for pilot in pilots if pilot in self.records.ending]

    async def _cancel(self, pilots: Collection[Pilot]) -> str:
        """Cancel pilots; returns why that failed, "" if it did not."""
        self.records = lifecycle.cancelled(self.records, pilots, self.clock.now())
        try:
            await self.scheduler.cancel(tuple(pilots))
        except SchedulerError as error:
            user, *more = {pilot.user for pilot in pilots}
            if isinstance(error, KeptError) and user and not more:  # else nobody knows whose they are
                self.quarantine.bar(user, f"its pilots could not be ended: {error}")
            return str(error) or "it failed"
        self.tell("cancelled", pilots, "")
        return ""
