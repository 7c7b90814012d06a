"""Waiting for operations between two ranks, which may never end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any


class Waiter:
    """A thread that waits for one operation after the other, and says how each ended.

    The operations bear no look at the clock meanwhile: one that is given up breaks its group. So where one
    never ends, this thread is left behind with it; its group has failed by then. `wait` waits for an
    operation and returns why it failed, or None.
    """

    def __init__(self, wait: Callable[[Any, timedelta], str | None]) -> None:
        self._wait = wait
        self._works: SimpleQueue[tuple[list[Any], timedelta, SimpleQueue[str | None]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ended(self, work: Any, limit: timedelta) -> SimpleQueue[str | None]:
        """Wait for `work` in the background, once those before are over. Its outcome comes out of the queue
        that this returns."""
        outcome: SimpleQueue[str | None] = SimpleQueue()
        self._works.put(([work], limit, outcome))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bftrainer-wait", daemon=True)
                self._thread.start()
        return outcome

    def close(self) -> None:
        """End the thread, once what it has been given is over."""
        self._works.put(None)

    def _run(self) -> None:
        while (given := self._works.get()) is not None:
            held, limit, outcome = given
            outcome.put(self._wait(held.pop(), limit))  # which holds the work no longer, see `Pending`
