"""An agent's messages to the daemon: bounded, whatever its worker says, and while the daemon is gone."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from bftrainer.model.reports import Message
from bftrainer.wire.words import MERGED

log = logging.getLogger(__name__)

REPORT_S = 0.25
"""Least seconds between reports of one worker's progress; those in between are merged."""
MAX_WAITING = 1_000
"""Messages that may wait for a stalled connection; workers' further messages are dropped."""
MAX_ENDS = 100
"""Ends of workers to keep until the daemon has heard them."""

Key = tuple[int, int, int]


class AgentOutbox:
    """Messages in the order in which they are sent.

    The end of a worker is kept until the daemon says that it has `heard` it, over as many connections as that
    takes. Reports of progress are merged. All else is lost with its connection: the next hello says what
    runs.
    """

    def __init__(self) -> None:
        self.connected = False
        """True if messages may be sent; else only ends are kept."""
        self._queue: deque[Message] = deque()
        self._ends: dict[Key, Message] = {}
        self._reports: dict[int, Message] = {}  # trainer -> its progress, to be sent at `_next`
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = asyncio.Event()
        self._overflowed = False

    def tell(self, message: Message) -> None:
        """Add a message."""
        if message["type"] == "exited":
            if len(self._ends) >= MAX_ENDS:
                log.warning("the daemon has not heard the ends of %d workers: dropping the oldest", MAX_ENDS)
                del self._ends[next(iter(self._ends))]
            self._ends[_key(message)] = message
        if not self.connected:
            return
        said = message.get("said", {})
        if said.get("type") in MERGED:
            self._merge(message)
        else:
            self._send_report(message.get("trainer", 0))
            self._add(message)

    def ends(self) -> list[Message]:
        """The ends of workers that the daemon has not heard yet."""
        return list(self._ends.values())

    def heard(self, message: Message) -> None:
        """The daemon has heard the end of this worker."""
        self._ends.pop(_key(message), None)

    def connect(self) -> None:
        """There is a connection: begin with the ends that the daemon may not have heard."""
        self.disconnect()
        self.connected = True
        self._queue.extend(self._ends.values())
        self._waiting.set()

    def disconnect(self) -> None:
        """There is none any more."""
        self.connected = self._overflowed = False
        self._queue.clear()
        self._reports.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def get(self) -> Message:
        """Wait for the next message to send."""
        while not self._queue:
            self._waiting.clear()
            await self._waiting.wait()
        return self._queue.popleft()

    def _add(self, message: Message) -> None:
        if len(self._queue) >= MAX_WAITING and message["type"] == "worker":
            if not self._overflowed:
                log.warning("the daemon takes no messages: dropping what workers say")
            self._overflowed = True
            return
        self._queue.append(message)
        self._waiting.set()

    def _merge(self, message: Message) -> None:
        """Take a report of progress together with one that waits."""
        trainer, before = message["trainer"], self._reports.get(message["trainer"])
        if before is not None and _same(before, message):
            old, new = before["said"], message["said"]
            both = {**old, **new, "metrics": {**_metrics(old), **_metrics(new)}}
            kinds = {old["type"], new["type"]}
            message = {**message, "said": {**both, "type": "progress" if "progress" in kinds else "metrics"}}
        elif before is not None:
            self._send_report(trainer)
        self._reports[trainer] = message
        if self._timer is None:
            self._send_reports()

    def _send_report(self, trainer: int) -> None:
        report = self._reports.pop(trainer, None)
        if report is not None:
            self._add(report)

    def _send_reports(self) -> None:
        """Send what has come since the last time, and look again later if there was anything."""
        found = bool(self._reports)
        for trainer in tuple(self._reports):
            self._send_report(trainer)
        again: Callable[[], None] = self._send_reports
        self._timer = asyncio.get_running_loop().call_later(REPORT_S, again) if found else None


def _key(message: Message) -> Key:
    return message["trainer"], message["started"], message["run"]


def _same(one: Message, other: Message) -> bool:
    """True if two reports are of the same process in the same membership."""
    return _key(one) == _key(other) and one["said"].get("generation") == other["said"].get("generation")


def _metrics(said: Message) -> Message:
    found = said.get("metrics")
    return found if isinstance(found, dict) else {}
