"""Collects how long main jobs waited, for admins: from the store, and from the batch system's accounts."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.api.callers import Caller, NotAllowedError
from bftrainer.daemon.answers.views.impact import DAY_S, ImpactView, checked, impact_view, promised
from bftrainer.daemon.lanes import Lane
from bftrainer.daemon.storage.backlog import MOST_STARTS
from bftrainer.errors import SchedulerError
from bftrainer.messages.commands.daemon import NO_ADMIN
from bftrainer.model.main_jobs import Accounted
from bftrainer.nodes.headroom.reserve import Reserve
from bftrainer.ports import Clock, Scheduler, Store
from bftrainer.settings.live import LiveSettings

ASKED_DAYS = 1.0
"""Longest span that the accounting is asked for (days): a week of a large site takes it long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactData:
    """Reads the store in a `lane`."""

    settings: LiveSettings
    clock: Clock
    scheduler: Scheduler
    reserve: Reserve
    store: Store
    lane: Lane
    started_at: float

    async def impact(self, caller: Caller, days: float) -> ImpactView:
        """Return the waits of main jobs in the last `days`.

        Raises:
            NotAllowedError: the caller is no admin.
            BusyError, LateError: see `Lane.run`.
        """
        if not caller.admin:
            raise NotAllowedError(NO_ADMIN.say(user=caller.user))
        now = self.clock.now()
        since = max(self.started_at, now - min(days, ASKED_DAYS) * DAY_S)
        try:
            accounted = await self.scheduler.accounted(since)
        except SchedulerError as error:
            accounted = Accounted(why=str(error))

        promise = promised(self.settings.current.promise, self.reserve.promise)

        def make() -> ImpactView:
            starts = self.store.main_starts(now - days * DAY_S, MOST_STARTS)
            return impact_view(starts, days, now, [*promise, checked(starts, accounted, since)])

        return await self.lane.run(caller.user, make)
