"""The events that wait for the engine, in total order."""

from __future__ import annotations

import asyncio

from bftrainer.model.events import Event, TrainerCancelled
from bftrainer.ports import Clock


class Mailbox:
    """Takes events from every part of the daemon. Those that wait together come out by time, then by the
    priority of their kind, then in the order of their arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._cancelled: set[int] = set()  # trainers whose cancellation waits
        self._in_work = False

    @property
    def idle(self) -> bool:
        """Whether every event that was due has been taken and acted on."""
        return self._queue.empty() and not self._in_work

    def emit(self, event: Event) -> None:
        """Queue an event; one whose time lies in the future is queued when it is due.

        Of a trainer's cancellations only one waits: a user may order it as often as it likes while the daemon
        recovers.
        """
        if isinstance(event, TrainerCancelled):
            if event.trainer in self._cancelled:
                return
            self._cancelled.add(event.trainer)
        delay = event.time - self._clock.now()
        if delay > 0:
            asyncio.get_running_loop().call_later(delay, self._queue.put_nowait, event)
        else:
            self._queue.put_nowait(event)

    def waiting(self) -> list[Event]:
        """Take the events that wait now, in order; none is no error."""
        return _in_order(self._drain())

    async def batch(self) -> list[Event]:
        """Wait for an event, and take it with those that wait then, in order. To call this again says that
        the last batch has been acted on."""
        self._in_work = False
        first = await self._queue.get()
        self._in_work = True
        return _in_order([first, *self._drain()])

    def _drain(self) -> list[Event]:
        self._cancelled.clear()
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]


def _in_order(events: list[Event]) -> list[Event]:
    """The total order; sorting is stable, so that arrival decides last."""
    return sorted(events, key=lambda event: (event.time, event.priority))
