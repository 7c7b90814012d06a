"""Makes what Prometheus reads: in a thread, and at most once in a second for each kind of caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bftrainer.api.answers import Answer
from bftrainer.api.callers import Caller
from bftrainer.daemon.lanes import Lane
from bftrainer.telemetry.metrics import METRICS_TYPE, render
from bftrainer.telemetry.telemetry import Telemetry

KEPT_S = 1.0
"""Seconds for which an answer is given again."""
SERIES = 10_000
"""Series of single trainers in one answer: about 2 MB of text, which Prometheus reads each time."""

Task = asyncio.Task[Answer]
Trainers = Callable[[], Sequence[Mapping[str, Any]]]


class Exposition:
    """The texts of the last second, by caller; all admins share one."""

    def __init__(
        self,
        telemetry: Telemetry,
        lane: Lane,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._telemetry, self._lane, self._clock = telemetry, lane, clock
        self._made: dict[str, tuple[float, Task]] = {}

    async def answer(
        self, caller: Caller, moment: Callable[[], tuple[Mapping[str, Any], Trainers]]
    ) -> Answer:
        """The metrics for a caller; `moment` gives the status, and what the thread makes the trainers with
        nodes of, in order.

        Raises:
            BusyError, LateError: see `Lane.run`.
        """
        now = self._clock()
        self._made = {key: made for key, made in self._made.items() if made[0] > now}
        key = "admins" if caller.admin else f"user {caller.user}"
        if key not in self._made:
            self._made[key] = (now + KEPT_S, asyncio.create_task(self._make(caller, *moment())))
        return await asyncio.shield(self._made[key][1])

    async def _make(self, caller: Caller, status: Mapping[str, Any], trainers: Trainers) -> Answer:
        registry = self._telemetry.metrics.registry

        def make() -> Answer:
            return Answer(render(registry, status, trainers(), SERIES), {}, METRICS_TYPE)

        return await self._lane.run(caller.user, make)
