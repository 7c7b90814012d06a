"""What the daemon writes to the store: decisions before they are acted on, and trainers' reports.

The machine does not wait for our disk. While nothing can be stored, the daemon goes on in memory and says
so in its status; everything is written when the store works again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from bftrainer.errors import StoreError, UnstorableError
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import Trainer
from bftrainer.ports import Clock, Store
from bftrainer.telemetry.telemetry import Telemetry

FLUSH_S = 2.0
"""How often reports that have come are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One event and what the engine decided on it; `trainers` are those that it changed."""

    event: Event
    trainers: Sequence[Trainer]
    plan: Plan | None
    actions: Sequence[Action]
    ended: Ended | None
    pool: frozenset[str]


@dataclass(slots=True)
class Attempt:
    """Whether a write to the store failed."""

    failed: bool = False


class Journal:
    """Implements `ports.Journal`, and stores decisions. No method raises `StoreError`: a write that fails is
    noted as trouble of the store, and tried again by `flush`. What can never be stored is told and dropped:
    it keeps nothing back that comes after it."""

    def __init__(self, store: Store, telemetry: Telemetry, clock: Clock) -> None:
        self._store, self._telemetry, self._clock = store, telemetry, clock
        self._decisions: deque[Decision] = deque()  # not stored yet
        self._pauses: deque[Pause] = deque()
        self._reports: dict[int, Progress] = {}
        self._latest: dict[int, Progress] = {}
        self._unfinished: set[int] = set()

    def begin(self, trainer: int) -> None:
        """Keep this trainer's latest report in memory until the trainer has ended."""
        self._unfinished.add(trainer)

    def latest(self, trainer: int) -> Progress | None:
        """What a trainer last reported, while it may be newer than what the store has."""
        return self._latest.get(trainer)

    # decisions

    def decided(self, decision: Decision) -> list[int]:
        """Store a decision, after those that are not stored yet. Returns the ids of its actions; none where
        it cannot be stored now."""
        if decision.ended is not None:
            self._unfinished.discard(decision.ended.trainer)
        self._decisions.append(decision)
        return self._write_decisions()

    def performed(self, actions: list[int]) -> None:
        """Store that these actions have been carried out."""
        if actions:
            with self._writing():
                self._store.performed(actions, self._clock.now())

    def _write_decisions(self) -> list[int]:
        actions: list[int] = []
        while self._decisions:
            self.performed(actions)  # of an earlier decision, carried out long ago
            first, actions = self._decisions[0], []
            with self._writing() as attempt:
                actions = self._store.record(
                    first.event, first.trainers, first.plan, first.actions, first.ended, first.pool
                )
            if attempt.failed:
                return []
            self._decisions.popleft()
        return actions

    # ports.Journal

    def progressed(self, progress: Progress) -> None:
        """Keep a trainer's latest report; `flush` stores it."""
        self._latest[progress.trainer] = self._reports[progress.trainer] = progress

    def pause(self, pause: Pause) -> None:
        """Store how long a member stood still in a rescale, and count it."""
        self._pauses.append(pause)
        self._telemetry.paused(pause)
        self._write_pauses()

    def _write_pauses(self) -> None:
        while self._pauses:
            with self._writing() as attempt:
                self._store.pause(self._pauses[0])
            if attempt.failed:
                return
            self._pauses.popleft()

    # the store

    def remember(self, key: str, value: str) -> None:
        """Store a value under a key; a failure is noted, and not tried again."""
        with self._writing():
            self._store.put(key, value)

    def flush(self) -> None:
        """Store what is not stored yet, and forget reports of trainers that have ended."""
        if self._decisions:
            self.performed(self._write_decisions())
        self._write_pauses()
        if self._reports:
            rows, self._reports = self._reports, {}
            with self._writing() as attempt:
                self._progress(list(rows.values()))
            if attempt.failed:
                self._reports = rows | self._reports
        kept = self._unfinished | self._reports.keys()
        self._latest = {trainer: report for trainer, report in self._latest.items() if trainer in kept}

    def _progress(self, reports: list[Progress]) -> None:
        try:
            self._store.progress(reports)
        except UnstorableError as error:  # one of them: the others can be stored
            if len(reports) == 1:
                raise
            self._telemetry.trouble("store", f"storing reports one by one: {error}")
            for report in reports:
                with suppress(UnstorableError):
                    self._store.progress([report])

    async def flush_for_ever(self) -> None:
        """Flush every `FLUSH_S` seconds."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()

    @contextmanager
    def _writing(self) -> Iterator[Attempt]:
        """Around a write to the store: a failure becomes trouble of the store instead of an error."""
        attempt = Attempt()
        trouble = ""
        try:
            yield attempt
        except UnstorableError as error:  # says nothing of the store, and would fail again
            self._telemetry.trouble("store", f"dropped: {error}")
        except StoreError as error:
            attempt.failed, trouble = True, str(error)
            self._telemetry.metrics.store_failures.inc()
        self._telemetry.condition("store", trouble)
