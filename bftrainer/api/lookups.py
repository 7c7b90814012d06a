"""Look-ups that may hang, such as of users in LDAP: in threads of their own, with a time limit, and kept."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bftrainer.api.transport.admission import BusyError
from bftrainer.messages.commands.daemon import LATE
from bftrainer.threads import in_thread

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")

AT_ONCE = 4
"""Look-ups at a time; one that hangs keeps its thread."""
KEPT_S = 60.0
"""Seconds for which an answer is valid without asking again."""
MAX_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class _Answer(Generic[Found]):
    """The result, or the error that says that there is none."""

    found: Found | Exception
    at: float

    def value(self) -> Found:
        if isinstance(self.found, Exception):
            # A copy: an error gathers the frames of all that it was raised in, and keeps their requests.
            raise copy.copy(self.found)
        return self.found


class Lookups(Generic[Key, Found]):
    """Asks `ask`, a function that may hang. Threads of the interpreter's own pool are not used: they are
    everybody's, and a process cannot end before they do.

    Where `ask` takes longer than `timeout_s`, what it said last time counts on. Keys of one `group` are
    looked up one at a time: whoever can ask with many keys keeps no others waiting.
    """

    def __init__(
        self,
        ask: Callable[[Key], Found],
        *,
        what: str,
        timeout_s: float,
        now: Callable[[], float] = time.monotonic,
        group: Callable[[Key], Hashable] = lambda key: key,
    ) -> None:
        self._ask, self._what, self._timeout_s, self._now = ask, what, timeout_s, now
        self._group = group
        self._kept: dict[Key, _Answer[Found]] = {}
        self._asked: dict[Hashable, asyncio.Task[None]] = {}  # by group
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def find(self, key: Key) -> Found:
        """Return what `ask` finds, or an answer of the last minute.

        Raises:
            BusyError: It takes too long, and the answer was not known before.
            Exception: What `ask` raises.
        """
        group, until, own = self._group(key), time.monotonic() + self._timeout_s, False
        while not own and not self._is_fresh(key) and (left_s := until - time.monotonic()) > 0:
            task = self._asked.get(group)
            if own := task is None:
                task = self._asked[group] = asyncio.create_task(self._look_up(key))
                task.add_done_callback(lambda _: self._asked.pop(group, None))
            await asyncio.wait([task], timeout=left_s)
        kept = self._kept.get(key)
        if kept is None:
            raise BusyError(
                LATE.say(what=f"{self._what} does not answer within", limit=self._timeout_s),
                503,
            )
        return kept.value()

    def _is_fresh(self, key: Key) -> bool:
        kept = self._kept.get(key)
        return kept is not None and self._now() - kept.at <= KEPT_S

    async def _look_up(self, key: Key) -> None:
        async with self._turn:
            answer = in_thread("lookup", lambda: self._ask(key))
            try:
                found: Found | Exception = await answer
            except Exception as error:  # noqa: BLE001  it is the answer, raised where it was asked for
                found = error.with_traceback(None)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = _Answer(found, self._now())
