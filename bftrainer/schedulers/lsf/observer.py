"""LSF as a recorder looks at it: as the daemon does and, where a site has jobstat, with what that sums up."""

from __future__ import annotations

import logging
from dataclasses import replace

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Snapshot, Totals
from bftrainer.schedulers.lsf import commands
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.lsf.scheduler import LsfScheduler
from bftrainer.schedulers.lsf.slow_queries import Rarely
from bftrainer.schedulers.lsf.text import jobs_text
from bftrainer.schedulers.shared.text import TextError

log = logging.getLogger(__name__)
STAT_S = 10.0
"""Seconds between two calls of jobstat, beside the polls."""


class LsfObserver:
    """A scheduler that is only polled. Its snapshots have `totals` where jobstat answers."""

    def __init__(self, scheduler: LsfScheduler, questions: Questions) -> None:
        self._scheduler, self._questions = scheduler, questions
        self._totals = Rarely[Totals | None](self._asked, STAT_S, None)

    async def poll(self) -> Snapshot:
        """The machine as LSF's commands show it now. Raises `SchedulerError`."""
        return replace(await self._scheduler.poll(), totals=await self._totals.last())

    async def close(self) -> None:
        """End what is asked beside polls."""
        self._totals.close()
        await self._scheduler.close()

    async def _asked(self) -> Totals | None:
        """Return jobstat's totals now; None where there is no jobstat. It belongs to the site, and may not be
        where LSF's commands are."""
        words = commands.stat()
        for path in dict.fromkeys((tuple(self._questions.path_of(words)), tuple(words))):
            try:
                done = await self._questions.run(path, question=True)
                return await self._questions.apart(lambda: jobs_text.totals(jobs_text.jobstat(done.out)))  # noqa: B023  it is awaited
            except (SchedulerError, TextError) as error:
                log.debug("%s: %s", path[0], error)
        return None
