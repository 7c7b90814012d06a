"""Cancels pilots by the numbers of their jobs, each as its user, all at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from bftrainer.errors import KeptError, SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.shared.command import CommandOutput


@dataclass(frozen=True, slots=True)
class Cancelling:
    """`jobs` tells the numbers of pilots as last seen, and `look` makes the batch system list them again.
    `end` ends jobs of a user, and returns why that failed, "" if it did not."""

    jobs: Callable[[], Mapping[Pilot, Collection[str]]]
    look: Callable[[], Awaitable[object]]
    end: Callable[[str, Collection[str]], Awaitable[str]]

    async def cancel(self, pilots: Collection[Pilot]) -> None:
        """Cancel pilots.

        Raises:
            SchedulerError: some could not be cancelled. `KeptError` if a user may have kept some.
        """
        known = [pilot for pilot in pilots if self._numbers(pilot)]
        others = [pilot for pilot in pilots if not self._numbers(pilot)]
        # all at once: none waits for a question about another, or for a user as whom nothing can be run
        failed = await asyncio.gather(self._known(known), self._unknown(others))
        if reasons := list(dict.fromkeys(reason for reasons in failed for reason in reasons if reason)):
            held_up = any(words in said for said in reasons for words in HELD_UP)
            raise (KeptError if held_up else SchedulerError)("; ".join(reasons))

    def _numbers(self, pilot: Pilot) -> set[str]:
        return set(self.jobs().get(pilot, ())) | ({pilot.job} - {""})

    async def _known(self, pilots: Collection[Pilot]) -> Collection[str]:
        """Cancel jobs by their numbers; returns why that failed where it did."""
        numbers: dict[str, set[str]] = defaultdict(set)
        for pilot in pilots:
            numbers[pilot.user] |= self._numbers(pilot)
        return await asyncio.gather(*(self.end(user, jobs) for user, jobs in numbers.items() if jobs))

    async def _unknown(self, pilots: Collection[Pilot]) -> Collection[str]:
        """Cancel pilots whose submissions were never confirmed: their names tell their numbers."""
        if not pilots:
            return ()
        try:
            await self.look()
        except SchedulerError as error:
            return (str(error),)
        return await self._known(pilots)


TRIES = 5
"""Times that a command which a signal has ended is retried at once."""
AGAIN_S = 0.05
BESIDE = 4
"""The most commands at a time that end jobs of one user."""
HELD_UP = ("was ended by a signal", "commands hang")
"""Reasons when a user may have killed or stopped our commands."""
SIGNALLED = range(129, 193)
"""sudo and shells exit with 128 and the number of the signal that has ended a command."""


def by_signal(done: CommandOutput) -> bool:
    """Return whether a signal has ended a command."""
    return done.code < 0 or done.code in SIGNALLED


def ended_by_signal(command: str, user: str) -> str:
    """Return why jobs of a user have not been ended: each try of the command was killed."""
    return f"{command} as {user} was ended by a signal, {TRIES} times" if user else f"{command} was killed"


class Hedge:
    """Tries what ends a user's jobs, once more every `slow_s` seconds while no try has come to an end."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._under_way: dict[str, set[asyncio.Task[str]]] = {}  # user -> tries

    async def first(self, user: str, tried: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """The first answer of a few tries: "" if one has ended the jobs, else why the first that came back
        has not. After a failure no further one begins."""
        mine = self._under_way.setdefault(user, set())
        started: set[asyncio.Task[str]] = set()
        why = ""
        while not why or started:
            if not why and len(mine) < BESIDE:
                task = asyncio.create_task(tried())
                mine.add(task)
                task.add_done_callback(mine.discard)
                started.add(task)
            if not started:
                return f"{BESIDE} commands hang that are to end jobs as {user}"
            last = bool(why) or len(mine) >= BESIDE
            done, started = await asyncio.wait(
                started, timeout=None if last else self._slow_s, return_when=asyncio.FIRST_COMPLETED
            )
            reasons = [task.result() for task in done]
            if "" in reasons:
                return ""
            why = why or next(iter(reasons), "")
        return why
