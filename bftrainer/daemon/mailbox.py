"""The events that wait for the engine, in total order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from bftrainer.model.events import (
    Event,
    GpusChanged,
    NodesChanged,
    PriorityChanged,
    TrainerCancelled,
    TrainerSubmitted,
)
from bftrainer.ports import Clock

AT_ONCE = 4
"""Events that are taken in a row, as after a study of hundreds of trials was cancelled, before other callers
and changes of nodes have their turn: an engine that does not know has nodes held that were given back."""


class Mailbox:
    """Takes events from every part of the daemon. Those that wait together come out by time, then by the
    priority of their kind, then in the order of their arrival.

    Of more than `AT_ONCE`, nodes come first, and then users in turn: each event costs the engine a plan, and
    one user's study has hundreds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.user_of: Callable[[int], str] = lambda trainer: ""
        """Tells whose a trainer is that the engine knows; empty: nobody's."""
        self._turns: dict[str, int] = {}  # user that has events here -> the last batch with one of them
        self._batches = 0
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._orders: dict[tuple[type[Event], int], Event] = {}  # of users, that wait: by kind and trainer
        self._in_work = False
        self._left: list[Event] = []  # of the last batch, in order

    @property
    def idle(self) -> bool:
        """Return whether every event that was due has been taken and acted on."""
        return self._queue.empty() and not self._left and not self._in_work

    def emit(self, event: Event) -> None:
        """Queue an event; one whose time lies in the future is queued when it is due.

        Of what a user orders for a trainer one event of a kind waits, and the last order counts: a user may
        order as often as it likes, also while the daemon recovers, and each event costs the engine a plan.
        """
        if isinstance(event, TrainerCancelled | PriorityChanged):
            key = type(event), event.trainer
            if before := self._orders.get(key):
                self._orders[key] = replace(event, time=before.time)
                return
            self._orders[key] = event
        delay = event.time - self._clock.now()
        if delay > 0:
            asyncio.get_running_loop().call_later(delay, self._queue.put_nowait, event)
        else:
            self._queue.put_nowait(event)

    def waiting(self) -> list[Event]:
        """Take the events that wait now, in order; none is no error."""
        found, self._left = _in_order([*self._left, *self._drain()]), []
        return found

    async def batch(self) -> list[Event]:
        """Wait for an event, and take it with those that wait then, in order. To call this again says that
        the last batch has been acted on."""
        self._in_work = False
        found = self._left or [self._latest(await self._queue.get())]
        self._in_work = True
        found = _in_order([*found, *self._drain()])
        if len(found) <= AT_ONCE:
            self._left, self._turns = [], {}
            return found
        nodes = [event for event in found if isinstance(event, NodesChanged | GpusChanged)]
        others = [event for event in found if not isinstance(event, NodesChanged | GpusChanged)]
        most = max(0, AT_ONCE - len(nodes))
        taken, left = self._in_turn(others, most)
        self._left = left
        return [*nodes, *taken]

    def _in_turn(self, events: Sequence[Event], most: int) -> tuple[list[Event], list[Event]]:
        """The next `most` events, of each user in turn, and those that are left, in order."""
        own = {event.trainer: event.spec.user for event in events if isinstance(event, TrainerSubmitted)}
        by_user: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            trainer = getattr(event, "trainer", None)  # events of nodes and of the daemon have none
            user = "" if trainer is None else own.get(trainer) or self.user_of(trainer)
            by_user[user].append(event)
        users = sorted(by_user, key=lambda user: self._turns.get(user, 0))
        rounds = zip_longest(*([(user, event) for event in by_user[user][:most]] for user in users))
        taken = [each for each in chain.from_iterable(rounds) if each is not None][:most]
        self._batches += 1
        before = {user: self._turns.get(user, 0) for user in users}
        self._turns = before | dict.fromkeys((user for user, _ in taken), self._batches)
        seen = {id(event) for _, event in taken}
        return [event for _, event in taken], [event for event in events if id(event) not in seen]

    def _drain(self) -> list[Event]:
        return [self._latest(self._queue.get_nowait()) for _ in range(self._queue.qsize())]

    def _latest(self, event: Event) -> Event:
        """The last order of its kind for its trainer, if it is one."""
        if isinstance(event, TrainerCancelled | PriorityChanged):
            return self._orders.pop((type(event), event.trainer), event)
        return event


def _in_order(events: list[Event]) -> list[Event]:
    """The total order; sorting is stable, so that arrival decides last."""
    return sorted(events, key=lambda event: (event.time, event.priority))
