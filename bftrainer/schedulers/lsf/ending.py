"""Ends jobs of LSF: signals them first, then kills them.

LSF's own bkill sends SIGINT, SIGTERM and SIGKILL, ten seconds apart, or SIGKILL at once to parallel jobs:
sites differ. So a pilot gets SIGTERM first, on which its agent ends at once, and then bkill. A pilot that is
still there when it is cancelled again later gets SIGKILL.

Where LSF lets our own account end users' jobs (an administrator of the queue may), our own account does: no
user can reach that command. For one that runs as a user see `Hedge`; and bkill comes though the user
has stopped the command that was to send SIGTERM.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.lsf import answers, commands
from bftrainer.schedulers.lsf.answers import Killed
from bftrainer.schedulers.lsf.command import reason
from bftrainer.schedulers.shared.cancelling import AGAIN_S, TRIES, Hedge, by_signal, ended_by_signal
from bftrainer.schedulers.shared.command import CommandOutput

MOMENT_S = 0.5
"""Seconds that an agent has from SIGTERM on until bkill, which may kill it."""
TERM_S = 2.0
"""Seconds that a command to send SIGTERM as a user may take; then bkill comes without it."""
SLOW_S = 2.0
"""A bkill that takes longer as a user gets another one beside it."""
PATIENT_S = 10.0
"""Seconds after which a job that we have told to end gets SIGKILL."""


class LsfJobEnder:
    """Ends jobs. `run` runs a command, `as_user` says what runs one as a user. `own`: whether LSF lets our
    own account end other users' jobs; None: it has not been tried."""

    def __init__(
        self,
        run: Callable[[Sequence[str]], Awaitable[CommandOutput]],
        as_user: Callable[[str, Sequence[str]], list[str]],
    ) -> None:
        self._run, self._as_user = run, as_user
        self.own: bool | None = None
        self._hedge = Hedge(SLOW_S)

    async def end(self, user: str, jobs: Collection[str], since: Mapping[str, float]) -> str:
        """End a user's jobs, each of which was first told so at the monotonic time `since`; returns why that
        failed, "" if it did not."""
        overdue = {job for job in jobs if time.monotonic() - since[job] > PATIENT_S}
        names = sorted(jobs)
        parts = [names[i : i + commands.MOST_IDS] for i in range(0, len(names), commands.MOST_IDS)]
        failed = await asyncio.gather(*(self._end(user, part, overdue) for part in parts))
        return "; ".join(dict.fromkeys(why for why in failed if why))

    async def _end(self, user: str, jobs: Sequence[str], overdue: Collection[str]) -> str:
        late = [job for job in jobs if job in overdue]
        fresh = [job for job in jobs if job not in overdue]
        try:
            if not user:
                return await self._all_as(OURSELVES, late, fresh)
            if self.own is not False:
                why = await self._as_ourselves(late, fresh)
                if not why or self.own:
                    return why
            left = await self._warned(_As(user), fresh)
            return await self._hedge.first(user, lambda: self._killed(_As(user), late, left))
        except SchedulerError as error:
            return str(error)

    async def _as_ourselves(self, late: Sequence[str], fresh: Sequence[str]) -> str:
        """End a user's jobs as our own account, and learn whether LSF lets it."""
        try:
            why = await self._all_as(FOR_OTHERS, late, fresh)
        except _DeniedError as error:
            self.own = False
            return str(error)
        self.own = True if not why else self.own
        return why

    async def _all_as(self, whom: _As, late: Sequence[str], fresh: Sequence[str]) -> str:
        return await self._killed(whom, late, await self._warned(whom, fresh))

    async def _warned(self, whom: _As, jobs: Sequence[str]) -> Sequence[str]:
        """Have jobs get SIGTERM, and wait a moment; returns those that had not ended before.

        Raises:
            SchedulerError: LSF does not answer us. A user may have kept its own command from its work.
        """
        if not jobs:
            return ()
        words = self._as_user(whom.user, commands.end(jobs, "TERM"))
        try:
            async with asyncio.timeout(TERM_S if whom.user else None):
                told = _answer(whom, await self._run(words))
        except (SchedulerError, TimeoutError):
            if not whom.user:
                raise
            return jobs
        left = [job for job in jobs if told.get(job) is not Killed.GONE]
        if left:
            await asyncio.sleep(MOMENT_S)
        return left

    async def _killed(self, whom: _As, late: Sequence[str], left: Sequence[str]) -> str:
        """Kill jobs that are late, and end those that are left; returns why that failed for some."""
        reasons = [await self._told(whom, jobs, sign) for jobs, sign in ((late, "KILL"), (left, "")) if jobs]
        return "; ".join(filter(None, reasons))

    async def _told(self, whom: _As, jobs: Sequence[str], sign: str) -> str:
        """Run bkill, again if a signal ends it; returns why it failed for some of the jobs. Its exit code
        says nothing: it is 255 if one of the jobs has ended already."""
        try:
            for _ in range(TRIES):
                done = await self._run(self._as_user(whom.user, commands.end(jobs, sign)))
                if not by_signal(done):
                    break
                await asyncio.sleep(AGAIN_S)
            else:
                return ended_by_signal("bkill", whom.user)
        except SchedulerError as error:
            return str(error)
        told = _answer(whom, done)
        kept = [job for job in jobs if told.get(job, Killed.REFUSED) is Killed.REFUSED]
        return reason(done, f"bkill did not end job {', '.join(kept[:5])}") if kept else ""


@dataclass(frozen=True, slots=True)
class _As:
    """As whom bkill runs, "" is our own account, and whether that ends jobs `of_others`."""

    user: str
    of_others: bool = False


OURSELVES, FOR_OTHERS = _As(""), _As("", of_others=True)


class _DeniedError(Exception):
    """LSF does not let our own account end a job of another user."""


def _answer(whom: _As, done: CommandOutput) -> Mapping[str, Killed]:
    """Return bkill's result for each job.

    Raises:
        _DeniedError: our own account may not end them, though their users may.
    """
    said = f"{done.out}\n{done.err}"
    if whom.of_others and answers.denied(said):
        raise _DeniedError(f"LSF does not let our own account end jobs of others: {done.words}")
    return answers.killed(said)
