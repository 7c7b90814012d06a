"""How jobs of LSF are ended: told first, then killed.

LSF's own bkill sends SIGINT, SIGTERM and SIGKILL, ten seconds apart, or SIGKILL at once to parallel jobs:
sites differ. So a pilot gets SIGTERM first, on which its agent ends at once, and then bkill. A pilot that is
still there when it is cancelled again later gets SIGKILL.

A command that runs as a user can be killed and stopped by that user. Where LSF lets our own account end the
user's jobs (an administrator of the queue may), our own account does: no user can reach that command.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.lsf import answers, ask
from bftrainer.schedulers.lsf.answers import Killed
from bftrainer.schedulers.lsf.command import reason
from bftrainer.schedulers.shared.command import Output

MOMENT_S = 0.5
"""So long an agent has from SIGTERM on until bkill, which may kill it."""
PATIENT_S = 10.0
"""A job that we have told to end for so long gets SIGKILL."""
REMEMBERED = 10_000
DENIED = "LSF does not let our own account end jobs of others"


class Ending:
    """Ends jobs. `run` runs a command, `as_user` says what runs one as a user. `ended` has the last
    `REMEMBERED` jobs, with the monotonic time at which each was first told. `own`: whether LSF lets our own
    account end other users' jobs; None: it has not been tried."""

    def __init__(
        self,
        run: Callable[[Sequence[str]], Awaitable[Output]],
        as_user: Callable[[str, Sequence[str]], list[str]],
    ) -> None:
        self._run, self._as_user = run, as_user
        self.ended: dict[str, float] = {}
        self.own: bool | None = None

    async def end(self, user: str, jobs: Collection[str]) -> str:
        """End a user's jobs; returns why that failed, "" if it did not."""
        now = time.monotonic()
        for job in jobs:
            self.ended.setdefault(job, now)
        while len(self.ended) > REMEMBERED:
            del self.ended[next(iter(self.ended))]
        names = sorted(jobs)
        parts = [names[i : i + ask.MOST_IDS] for i in range(0, len(names), ask.MOST_IDS)]
        failed = await asyncio.gather(*(self._end(user, part, now) for part in parts))
        return "; ".join(dict.fromkeys(why for why in failed if why))

    async def _end(self, user: str, jobs: Sequence[str], now: float) -> str:
        if user and self.own is not False:
            why = await self._end_as("", jobs, now, others=True)
            if not why:
                self.own = True
                return ""
            if why == DENIED:
                self.own = False
        return await self._end_as(user, jobs, now)

    async def _end_as(self, user: str, jobs: Sequence[str], now: float, *, others: bool = False) -> str:
        """End jobs, of `others` perhaps; then LSF may say that we may not."""
        late = [job for job in jobs if now - self.ended.get(job, now) > PATIENT_S]
        fresh = [job for job in jobs if job not in late]
        why = await self._told(user, late, "KILL") if late else ""
        if not fresh:
            return why
        try:
            told = answers.killed(_said(await self._run(self._as_user(user, ask.end(fresh, "TERM")))))
            if others and Killed.REFUSED in told.values():
                return DENIED
            left = [job for job in fresh if told.get(job) is not Killed.GONE]
            if left:
                await asyncio.sleep(MOMENT_S)
        except SchedulerError as error:
            return str(error)
        return "; ".join(filter(None, (why, await self._told(user, left) if left else "")))

    async def _told(self, user: str, jobs: Sequence[str], signal: str = "") -> str:
        """Run bkill; returns why it failed for some of the jobs. Its exit code says nothing: it is 255 if one
        of the jobs has ended already."""
        try:
            done = await self._run(self._as_user(user, ask.end(jobs, signal)))
        except SchedulerError as error:
            return str(error)
        told = answers.killed(_said(done))
        kept = [job for job in jobs if told.get(job, Killed.REFUSED) is Killed.REFUSED]
        return reason(done, f"bkill did not end job {', '.join(kept[:5])}") if kept else ""


def _said(done: Output) -> str:
    return f"{done.out}\n{done.err}"
