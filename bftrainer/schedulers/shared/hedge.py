"""How a user's jobs are ended although the user may do to our commands what it likes.

A command that runs as a user can be killed and stopped by that user. So one that a signal has ended is run
again, and next to one that hangs another is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bftrainer.schedulers.shared.command import Output

TRIES = 5
"""So often a command that a signal has ended is tried again at once."""
AGAIN_S = 0.05
BESIDE = 4
"""The most commands at a time that end jobs of one user."""
HELD_UP = ("was ended by a signal", "commands hang")
"""What a reason says if a user may have killed or stopped our commands."""
SIGNALLED = range(129, 193)
"""sudo and shells exit with 128 and the number of the signal that has ended a command."""


def by_signal(done: Output) -> bool:
    """Whether a signal has ended a command."""
    return done.code < 0 or done.code in SIGNALLED


def ended_by_signal(command: str, user: str) -> str:
    """Why jobs of a user have not been ended: each try of the command was killed."""
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
