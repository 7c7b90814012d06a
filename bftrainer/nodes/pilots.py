"""The pilots that hold nodes for us: which there should be, and what became of those that were ordered.

A node is held while a trainer is to run on it, by a pilot of the user as whom the trainer runs. Orders are
slow and may fail, and their answers may get lost; so what counts in the end is what the scheduler lists.
A pilot that it lists and that nobody here knows is cancelled; one that it does not list is gone.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bftrainer.errors import NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.ports import Clock, Scheduler
from bftrainer.wire import seal

AT_ONCE = 8
"""So many orders are under way at a time."""
LISTED_S = 5.0
"""A pilot that was submitted so long ago and is not listed does not exist."""
IN_A_ROW = 3
"""So many submissions refused in a row are not their nodes' fault."""
GONE = "its pilot is gone"
BACKOFF_S = 5.0
"""What failed is tried again so much later, twice as much at every failure, and `MAX_BACKOFF_S` at most: a
submission that was refused, and a cancellation after which the pilot is still listed."""
MAX_BACKOFF_S = 300.0


@dataclass(slots=True)
class Held:
    """A pilot that was ordered for a node."""

    pilot: Pilot
    since: float  # when its submission was answered, or given up
    listed: bool = False
    reported: bool = False  # its agent has been there
    unused: float | None = None  # since when nobody needs it


@dataclass(slots=True)
class Refusals:
    """Why and until when something is not tried again."""

    count: int = 0
    until: float = 0.0
    reason: str = ""

    def more(self, now: float, reason: str) -> None:
        self.count += 1
        self.until = now + min(MAX_BACKOFF_S, BACKOFF_S * 2 ** (self.count - 1))
        self.reason = reason


@dataclass(slots=True)
class Pilots:
    """Orders pilots and keeps count of them. Everything but `order` and `cancel` returns at once.

    `connected` says whether a node's agent is, `tell` hears what becomes of pilots. `start_s` is how long an
    agent may take until it connects, `spare_s` how long a pilot is kept that nobody needs.
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
    held: dict[str, Held] = field(default_factory=dict)  # node -> its pilot
    releasing: dict[str, float] = field(
        default_factory=dict
    )  # nodes whose pilots are being let go, since when
    _submitted: deque[float] = field(default_factory=deque)  # when, within the last minute
    _refused: dict[str, Refusals] = field(default_factory=dict)  # node -> what its pilots met with
    _everywhere: Refusals = field(default_factory=Refusals)
    _failed: int = 0  # submissions in a row
    _cancelled: dict[Pilot, Refusals] = field(default_factory=dict)  # that are still listed, as far as known

    def secret_of(self, tag: str) -> str:
        return seal.of_pilot(self.key, tag)

    def known(self, node: str, tag: str) -> Held | None:
        """The pilot that an agent says to be in, if there should be one."""
        held = self.held.get(node)
        return held if held is not None and held.pilot.tag == tag else None

    def runs_as(self, node: str, user: str) -> bool:
        """Whether the pilot on a node is this user's."""
        held = self.held.get(node)
        return held is not None and held.pilot.user == user

    def adopt(self, pilot: Pilot) -> None:
        """Take a pilot over that an earlier daemon ordered."""
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
        """A node's agent has connected: its pilot runs, and whatever was wrong there is over."""
        self.held[node].listed = self.held[node].reported = True
        self._refused.pop(node, None)

    def forget(self, node: str) -> Pilot | None:
        """The pilot of a node is gone, or is to go: whoever lists it from now on is asked to cancel it."""
        held = self.held.pop(node, None)
        return held.pilot if held else None

    # what the scheduler lists

    def strays(self, listed: Collection[Pilot], time: float) -> list[Pilot]:
        """Reconcile with what a look at the scheduler at `time` has found: the pilots that should not be.

        Everybody can read a tag in the scheduler's list and submit a job that carries it: a pilot counts
        only with its node and user.
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
        """The nodes whose pilots are gone or were never born, as of a look at `time`, with the reason."""
        found: dict[str, str] = {}
        for node, held in self.held.items():
            age = time - held.since
            if self.connected(node):
                continue
            if held.pilot not in listed and (held.listed or age > LISTED_S):
                found[node] = GONE if held.listed else "its pilot was lost on its way"
            elif age > self.start_s:
                why = held.pilot.pending or "its agent did not report; do nodes reach `address`?"
                found[node] = f"its pilot did not start within {self.start_s:g} s: {why}"
        return found

    def refuse(self, node: str, reason: str) -> None:
        """No more pilots for a node for a while."""
        self._refused.setdefault(node, Refusals()).more(self.clock.now(), reason)

    def refused(self) -> dict[str, str]:
        """Node -> why no pilot is ordered for it at the moment."""
        now = self.clock.now()
        return {node: r.reason for node, r in self._refused.items() if r.until > now}

    # what is to be done

    def to_cancel(self, wanted: Mapping[str, str], busy: Callable[[str], bool]) -> list[str]:
        """The nodes whose pilots can go: nobody needs them any more, or another user does."""
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
        """The pilots that are to be ordered now, within what may be submitted in a minute."""
        now = self.clock.now()
        while self._submitted and now - self._submitted[0] >= 60.0:
            self._submitted.popleft()
        if self._everywhere.until > now:
            return []
        barred = self.refused()
        nodes = [
            n for n in sorted(wanted) if n not in self.held and n not in barred and n not in self.releasing
        ]
        room = max(0, self.per_minute - len(self._submitted))
        return [Pilot(tag=uuid.uuid4().hex, node=node, user=wanted[node]) for node in nodes[:room]]

    async def order(self, pilots: Iterable[Pilot], limit_s: Callable[[str], float | None]) -> list[str]:
        """Submit pilots, several at a time; `limit_s` of a node is for how long.

        Returns the nodes that get none.
        """
        turn = asyncio.Semaphore(AT_ONCE)
        failed: list[str] = []

        async def submit(pilot: Pilot) -> None:
            async with turn:
                if self.known(pilot.node, pilot.tag) is None:
                    return  # called off meanwhile
                try:
                    await self.scheduler.submit(pilot, self.secret_of(pilot.tag), limit_s(pilot.node))
                    self._everywhere, self._failed = Refusals(), 0
                    self.works("")
                    self.tell("submitted", [pilot], "")
                except UnsureError as error:
                    self.tell("unsure", [pilot], str(error))
                    self._everywhere.more(self.clock.now(), str(error))
                except SchedulerError as error:
                    self.tell("refused", [pilot], str(error))
                    self.refuse(pilot.node, str(error))
                    self._failed += not isinstance(error, NoRoomError)
                    if self._failed >= IN_A_ROW:
                        self.works(str(error))
                        self._everywhere.more(self.clock.now(), str(error))
                    if self.known(pilot.node, pilot.tag) is not None:
                        del self.held[pilot.node]
                        failed.append(pilot.node)
            held = self.known(pilot.node, pilot.tag)
            if held is not None:
                held.since = self.clock.now()
            elif pilot.node not in failed:
                await self.cancel([pilot])  # it was let go while it was submitted

        now = self.clock.now()
        wanted = tuple(pilots)
        for pilot in wanted:
            self.held[pilot.node] = Held(pilot, math.inf)
            self._submitted.append(now)
        await asyncio.gather(*(submit(pilot) for pilot in wanted))
        return failed

    async def cancel(self, pilots: Collection[Pilot]) -> None:
        """Cancel pilots; as long as they are listed it is tried again, less and less often: somebody's job
        that looks like a pilot may be one that we cannot end."""
        if not pilots:
            return
        for pilot in pilots:
            self._cancelled.setdefault(pilot, Refusals()).more(self.clock.now(), "")
        try:
            await self.scheduler.cancel(tuple(pilots))
            self.tell("cancelled", pilots, "")
        except SchedulerError as error:
            self.tell("cancel_failed", pilots, str(error))
