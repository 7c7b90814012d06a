"""Deletes what the store holds for longer than `keep_events_days`, or beyond `max_store_mb`: step by step."""

from __future__ import annotations

import json
from typing import Any

from bftrainer.ports import Clock, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry

STEP_ROWS = 200
"""Events, reports and pauses that are deleted at once: a decision waits for them for milliseconds."""
PAUSE_S = 0.1
"""Between two steps while there is something to delete."""
CHECK_S = 5.0
"""Seconds between two checks for rows to delete or to tidy up."""

SURE_S = 600.0
"""Seconds after the start for which nothing counts as old, nor while the machine's clock differs from ours by
`DOUBT_S`: a machine may begin with a clock that is years ahead, and all history would be deleted for it."""
DOUBT_S = 60.0

MOST_RUNS = 500
"""A daemon that is started again and again must not make its own start slow."""

DAY_S = 86_400.0


class Pruning:
    """Deletes old events, reports and pauses, a few at a time, whenever it is called; earlier than they are
    old enough if the store holds too much."""

    def __init__(self, store: Store, settings: LiveSettings, clock: Clock, telemetry: Telemetry) -> None:
        self._store, self._settings, self._clock, self._telemetry = store, settings, clock, telemetry
        self._sure_at = clock.now() + SURE_S

    def step(self) -> float:
        """Delete a few of the oldest rows. Returns after how long to call again (s); 0: after the next write
        at the latest, because the store holds too much.

        Raises:
            StoreError: nothing was deleted.
        """
        settings = self._settings.current
        trimmed = self._store.trim(settings.max_store_mb * 1_000_000, STEP_ROWS)
        if trimmed is not None:
            kind, count = trimmed
            self._telemetry.bounded("max_store_mb", kind, times=count)
            return 0.0
        now = self._clock.now()
        is_sure = now >= self._sure_at and abs(self._clock.behind_s()) < DOUBT_S
        before = oldest_kept(settings, now) if is_sure else None
        deleted = 0 if before is None else self._store.prune(before, STEP_ROWS)
        self._store.tidy()
        return PAUSE_S if deleted else CHECK_S


def oldest_kept(settings: Settings, now: float) -> float | None:
    """The time before which events are deleted; None: never."""
    days = settings.keep_events_days
    return None if days is None else now - days * DAY_S


def keep_runs(stored: str, settings: Settings, now: float) -> list[dict[str, Any]]:
    """Return the daemon's stored runs, in order, whose events may still be there.

    These are the last that began before the oldest event that is kept, and all since; at most `MOST_RUNS`.
    None are left of what is damaged.
    """
    try:
        runs = [run for run in json.loads(stored) if isinstance(run["begin"], float | int)][-MOST_RUNS:]
    except (ValueError, TypeError, LookupError, RecursionError):
        return []
    before = oldest_kept(settings, now)
    if before is None:
        return runs
    older = [run for run in runs if run["begin"] < before]
    return [*older[-1:], *runs[len(older) :]]
