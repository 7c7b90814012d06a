"""The pilots that hold nodes for us: which to submit and to cancel, and what became of them.

A node is held while a trainer is to run on it, by a pilot of the user as whom the trainer runs. A submission
is slow and may fail, and its answer may get lost; so what counts in the end is what the scheduler lists. A
pilot that is listed and not known here is cancelled; a known one that is not listed is gone.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from bftrainer.errors import KeptError, NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.nodes.conduct import Conduct, Refusals
from bftrainer.nodes.held import Held, awaited
from bftrainer.nodes.share import shared_out
from bftrainer.ports import Clock, Scheduler
from bftrainer.wire import seal

AT_ONCE = 8
"""So many submissions are under way at a time."""
OF_ONE_USER = 2
"""So many of them are one user's: they run as that user, which can stop them."""
LISTED_S = 5.0
"""A pilot that is not listed so long after its submission does not exist."""
GONE = "its pilot is gone"
SOON_S = 0.2
"""A pilot of ours that could not be cancelled is tried again so soon, `SOON_MORE` times as much later after
every further try, `MAX_SOON_S` at most: a main job may wait for its node."""
SOON_MORE = 1.2
MAX_SOON_S = 1.0


@dataclass(slots=True)
class Pilots:
    """Submits and cancels pilots, and keeps account of them. Only `order` and `cancel` wait for the
    scheduler.

    `connected` says whether a node's agent is, `tell` is told what becomes of pilots. `start_s` is how long
    an agent may take until it connects, `spare_s` how long a pilot is kept that no trainer needs,
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
    conduct: Conduct
    held: dict[str, Held] = field(default_factory=dict)  # node -> its pilot
    releasing: dict[str, float] = field(
        default_factory=dict
    )  # nodes whose pilots are being let go, since when
    _submitted: deque[tuple[float, str]] = field(
        default_factory=deque
    )  # when and for which user, within the last minute
    _everywhere: Refusals = field(default_factory=Refusals)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _turns: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    _cancelled: dict[Pilot, Refusals] = field(default_factory=dict)  # those that are still listed

    def secret_of(self, tag: str) -> str:
        """The secret of the pilot with this tag."""
        return seal.of_pilot(self.key, tag)

    def known(self, node: str, tag: str) -> Held | None:
        """The pilot that an agent claims to be in; None if we have no such pilot there."""
        held = self.held.get(node)
        return held if held is not None and held.pilot.tag == tag else None

    def runs_as(self, node: str, user: str) -> bool:
        """Whether the pilot on a node is this user's."""
        held = self.held.get(node)
        return held is not None and held.pilot.user == user

    def adopt(self, pilot: Pilot) -> None:
        """Take over a pilot that an earlier daemon submitted."""
        self.held[pilot.node] = Held(pilot, self.clock.now(), listed=True)

    def take_over(self, listed: Collection[Pilot]) -> list[Pilot]:
        """Adopt the pilots that run, one on each node; returns the others, which must go.

        Whether their nodes stay ours is for later polls to say: a scheduler that was restarted as well does
        not know its nodes yet, and trainers that must go are to have a moment for it.
        """
        strays = []
        for pilot in listed:
            if pilot.node not in self.held and not pilot.pending:
                self.adopt(pilot)
            else:
                strays.append(pilot)
        return strays

    def reports(self, node: str) -> None:
        """A node's agent has connected: its pilot runs, and earlier refusals there no longer count."""
        held = self.held[node]
        held.listed = held.reported = True
        self.conduct.reports(node, held.pilot.user)

    def forget(self, node: str) -> Pilot | None:
        """A node's pilot is gone, or is to go: if a later poll lists it, it is cancelled. Returns it."""
        held = self.held.pop(node, None)
        return held.pilot if held else None

    # what the scheduler lists

    def strays(self, listed: Collection[Pilot], time: float) -> list[Pilot]:
        """Reconcile with the pilots that a poll at `time` has listed. Returns those that should not exist.

        Any user can read a tag in the scheduler's list and submit a job that carries it: a pilot is ours only
        if its node and user are right, too.
        """
        shown = {pilot: pilot for pilot in listed}
        for held in self.held.values():
            if held.pilot in shown:
                held.listed = True
                held.pilot = shown[held.pilot]
        ours = {held.pilot for held in self.held.values()}
        self._cancelled = {pilot: tries for pilot, tries in self._cancelled.items() if pilot in shown}
        waiting = {pilot for pilot, tries in self._cancelled.items() if tries.until >= time}
        return [pilot for pilot in shown.values() if pilot not in ours and pilot not in waiting]

    def lost(self, listed: Collection[Pilot], time: float) -> dict[str, str]:
        """The nodes whose pilots are gone or never began, as of a poll at `time`, with the reason."""
        found: dict[str, str] = {}
        shown = frozenset(listed)
        for node, held in self.held.items():
            age = time - held.since
            if self.connected(node):
                continue
            if held.pilot not in shown and (held.listed or age > LISTED_S):
                found[node] = GONE if held.listed else "its pilot was lost on its way"
            elif age > self.start_s:
                why = held.pilot.pending or "its agent did not report; do nodes reach `address`?"
                found[node] = f"its pilot did not start within {self.start_s:g} s: {why}"
        return found

    def ends(self, node: str) -> bool:
        """A pilot has ended though its node is ours. One that does so soon, again and again, is believed as
        often; but its user gets new pilots there ever more rarely. Returns whether it is such a one."""
        held = self.held.get(node)
        lived_s = 0.0 if held is None else self.clock.now() - held.since
        return held is not None and self.conduct.ended(node, held.pilot.user, lived_s)

    def fails(self, node: str, reason: str) -> None:
        """Submit no pilots of this user for a node for a while."""
        held = self.held.get(node)
        if held is not None:
            self.conduct.fails(node, held.pilot.user, reason)

    # what is to be done

    def to_cancel(self, wanted: Mapping[str, str], busy: Callable[[str], bool]) -> list[str]:
        """The nodes whose pilots can go: no trainer has needed them for `spare_s`, or another user's does."""
        now = self.clock.now()
        found = []
        for node, held in self.held.items():
            user = wanted.get(node)
            if user == held.pilot.user:
                held.unused = None
                continue
            held.unused = held.unused or now
            if not busy(node) and (user is not None or now - held.unused >= self.spare_s):
                found.append(node)
        return found

    def to_submit(self, wanted: Mapping[str, str]) -> list[Pilot]:
        """The pilots to submit now, within `per_minute`; `wanted` is node -> user."""
        now = self.clock.now()
        while self._submitted and now - self._submitted[0][0] >= 60.0:
            self._submitted.popleft()
        if self._everywhere.until > now:
            return []
        barred = self.conduct.nodes()
        missing = {
            node: user
            for node, user in sorted(wanted.items())
            if not (node in self.held or node in barred or node in self.releasing)
            and self.conduct.allows(node, user)
        }
        taken = Counter(user for _, user in self._submitted)
        others = self.conduct.users() | frozenset(wanted.values())
        chosen = shared_out(missing, taken, self.per_minute, others)
        return [Pilot(tag=uuid.uuid4().hex, node=node, user=wanted[node]) for node in chosen]

    async def order(self, pilots: Iterable[Pilot], limit_s: Callable[[str], float | None]) -> list[str]:
        """Submit pilots, several at a time; `limit_s` says for how long a node's may be there.

        Returns the nodes whose pilots were refused.
        """
        now = self.clock.now()
        wanted = tuple(pilots)
        for pilot in wanted:
            self.held[pilot.node] = Held(pilot, math.inf)
            self._submitted.append((now, pilot.user))
        refused = await asyncio.gather(*(self._submit(pilot, limit_s) for pilot in wanted))
        return [pilot.node for pilot, gone in zip(wanted, refused, strict=True) if gone]

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
                self.conduct.accepted()
                self.works("")
                self.tell("submitted", [pilot], "")
            except UnsureError as error:
                self.tell("unsure", [pilot], str(error))
                self._unanswered(pilot.user, str(error))
            except SchedulerError as error:
                self.tell("refused", [pilot], str(error))
                self._refused(pilot, error)
                refused = self.known(pilot.node, pilot.tag) is not None
                if refused:
                    del self.held[pilot.node]
        held = self.known(pilot.node, pilot.tag)
        if held is not None:
            held.since = self.clock.now()
        elif not refused and not awaited(self.held, pilot.tag):
            await self.cancel([pilot])  # it was let go while it was submitted
        return refused

    def _unanswered(self, user: str, reason: str) -> None:
        """A submission was not answered. It ran as its user, which may have stopped it: others go on."""
        if user:
            self.conduct.bar(user, reason)
        else:
            self._everywhere.more(self.clock.now(), reason)

    def _refused(self, pilot: Pilot, error: SchedulerError) -> None:
        """A submission failed: for its node, its user, or, if those of several users fail, everywhere."""
        reason = str(error)
        if isinstance(error, NoRoomError):
            self.conduct.node_fails(pilot.node, reason)
        elif failed := self.conduct.refused(pilot.node, pilot.user, reason):
            if len(failed) > 1 or self.conduct.users() <= failed:
                self.works(reason)
            if len(failed) > 1 or "" in failed:
                self._everywhere.more(self.clock.now(), reason)

    async def cancel(self, pilots: Collection[Pilot]) -> None:
        """Cancel pilots. While they stay listed, `strays` returns them again, less and less often: a job that
        only looks like a pilot may be one that we cannot end."""
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
            pilots = [pilot for pilot in pilots if pilot in self._cancelled]

    async def _cancel(self, pilots: Collection[Pilot]) -> str:
        """Cancel pilots; returns why that failed, "" if it did not."""
        for pilot in pilots:
            self._cancelled.setdefault(pilot, Refusals()).more(self.clock.now(), "")
        try:
            await self.scheduler.cancel(tuple(pilots))
        except SchedulerError as error:
            user, *more = {pilot.user for pilot in pilots}
            if isinstance(error, KeptError) and user and not more:  # else nobody knows whose they are
                self.conduct.bar(user, f"its pilots could not be ended: {error}")
            return str(error) or "it failed"
        self.tell("cancelled", pilots, "")
        return ""
