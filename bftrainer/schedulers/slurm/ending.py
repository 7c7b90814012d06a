"""Ends jobs of Slurm: at once, although their users may do to our commands what they like.

`scancel` alone leaves a job's processes Slurm's KillWait to end (30 s, if the site has not changed it), and a
user can stop its own processes. A job whose processes were sent SIGKILL before does not wait. That order
matters: to a job that is ending already Slurm passes no signal on.

Users may start steps in their jobs (`srun --jobid`). These are killed first, by the signal with which Slurm
itself aborts steps: `--signal=KILL` would cancel the job, and leave its steps the KillWait. A step that comes
between that and the job's end can still ignore SIGTERM: it takes a user that starts steps all the time.

What Slurm lets our own account end, our own account ends: no user can reach that command. For one that runs
as a user see `Hedge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.shared.cancelling import AGAIN_S, TRIES, Hedge, by_signal, ended_by_signal
from bftrainer.schedulers.shared.command import CommandOutput
from bftrainer.schedulers.slurm.command import reason

STEPS = ("scancel", "--signal=997")
"""Slurm's SIG_ABORT, to all steps but the batch script. Not by name: scancel knows none for it."""
AT_ONCE = ("scancel", "--batch", "--signal=KILL")
SLOW_S = 1.0
"""A command that takes longer gets another one beside it."""


class SlurmJobEnder:
    """Ends jobs. `run` runs a command, `as_user` says what runs one as a user.

    `own`: Slurm lets our own account end other users' jobs.
    """

    def __init__(
        self,
        run: Callable[[Sequence[str]], Awaitable[CommandOutput]],
        as_user: Callable[[str, Sequence[str]], list[str]],
    ) -> None:
        self._run, self._as_user = run, as_user
        self.own = False
        self._hedge = Hedge(SLOW_S)

    async def end(self, user: str, jobs: Collection[str], running: Collection[str]) -> str:
        """End a user's jobs, of which those of `running` can have steps; returns why that failed, "" if it
        did not."""
        if user and self.own and not await self._tried("", jobs, running):
            return ""
        return await self._hedge.first(user, lambda: self._tried(user, jobs, running))

    async def _tried(self, user: str, jobs: Collection[str], running: Collection[str]) -> str:
        """End jobs, again and again if signals end our commands."""
        done = None
        try:
            for left in reversed(range(TRIES)):
                done = await self._once(user, jobs, running, last=not left)
                if not by_signal(done):
                    break
                await asyncio.sleep(AGAIN_S)
            if user and done is not None and by_signal(done):  # Slurm may let us do it ourselves
                own = await self._once("", jobs, running, last=True)
                done = own if own.code == 0 else done
        except SchedulerError as error:
            return str(error)
        if done is None or done.code == 0 or "Invalid job id" in done.err:
            return ""
        if by_signal(done):
            return ended_by_signal("scancel", user)
        return reason(done, f"scancel as {user} failed" if user else "scancel failed")

    async def _once(
        self, user: str, jobs: Collection[str], running: Collection[str], *, last: bool
    ) -> CommandOutput:
        """Kill the jobs, then have Slurm count them as cancelled, however that came out: jobs that wait or
        are gone cannot be killed. To the steps of a job that waits, scancel would try to pass a signal on for
        a minute."""
        names = sorted(jobs)
        with_steps = sorted(set(jobs) & set(running))
        for words, those in ((STEPS, with_steps), (AT_ONCE, names)):
            if not those:
                continue
            killed = await self._run(self._as_user(user, [*words, *those]))
            if by_signal(killed) and not last:
                return killed  # after what follows it could no longer be done
        return await self._run(self._as_user(user, ["scancel", *names]))
