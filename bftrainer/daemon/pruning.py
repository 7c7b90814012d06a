"""Deletes what the store holds for longer than `keep_events_days`, in small steps beside everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bftrainer.errors import StoreError
from bftrainer.ports import Clock, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry

STEP_ROWS = 200
"""So many events, reports and pauses are deleted at once: in a few milliseconds, for which others wait."""
PAUSE_S = 0.1
"""Between two steps while there is something to delete."""
CHECK_S = 60.0
"""How often the store is asked for something to delete."""

DAY_S = 86_400.0


class Pruning:
    """Deletes old events, reports and pauses for as long as the daemon runs."""

    def __init__(self, store: Store, settings: LiveSettings, clock: Clock, telemetry: Telemetry) -> None:
        self._store, self._settings, self._clock, self._telemetry = store, settings, clock, telemetry

    async def run(self) -> None:
        """Prune, for ever. A store that fails is tried again later."""
        while True:
            try:
                deleted = await self.step()
            except StoreError as error:
                self._telemetry.trouble("pruning", error)
                deleted = 0
            await asyncio.sleep(PAUSE_S if deleted else CHECK_S)

    async def step(self) -> int:
        """Delete a few of the oldest rows that are old enough. Returns how many.

        Raises:
            StoreError: nothing was deleted.
        """
        before = oldest_kept(self._settings.current, self._clock.now())
        return 0 if before is None else await asyncio.to_thread(self._store.prune, before, STEP_ROWS)


def oldest_kept(settings: Settings, now: float) -> float | None:
    """The time before which events are deleted; None: never."""
    days = settings.keep_events_days
    return None if days is None else now - days * DAY_S


def keep_runs(runs: Sequence[dict[str, Any]], settings: Settings, now: float) -> list[dict[str, Any]]:
    """Of the daemon's runs in order, those whose events may still be there.

    These are the last that began before the oldest event that is kept, and all since.
    """
    before = oldest_kept(settings, now)
    if before is None:
        return list(runs)
    older = [run for run in runs if run["begin"] < before]
    return [*older[-1:], *runs[len(older) :]]
