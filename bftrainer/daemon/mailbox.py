"""The events that wait for the engine, in total order."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bftrainer.model.events import Event, NodesChanged, PriorityChanged, TrainerCancelled
from bftrainer.ports import Clock

AT_ONCE = 16
"""Where more events wait, as after a study of hundreds of trials was cancelled, so many are taken before it
is seen whether nodes have come or gone: an engine that does not know has nodes held that were given back."""


class Mailbox:
    """Takes events from every part of the daemon. Those that wait together come out by time, then by the
    priority of their kind, then in the order of their arrival. Of more than `AT_ONCE`, nodes come first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._orders: dict[tuple[type[Event], int], Event] = {}  # of users, that wait: by kind and trainer
        self._in_work = False
        self._left: list[Event] = []  # of the last batch, in order

    @property
    def idle(self) -> bool:
        """Whether every event that was due has been taken and acted on."""
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
        if len(found) > AT_ONCE:
            found.sort(key=lambda event: not isinstance(event, NodesChanged))
        most = max(AT_ONCE, sum(isinstance(event, NodesChanged) for event in found))
        self._left = found[most:]
        return found[:most]

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
