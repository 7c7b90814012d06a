"""The thread that owns all writes to the store: nobody else waits for the disk.

A write that fails is tried again, with pauses that grow, for as long as the process lives. What the store
will never take as it is, is stored in smaller parts, so that what comes after it is not kept waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from bftrainer.daemon.storage.backlog import Backlog
from bftrainer.daemon.storage.writes import (
    ReportsWrite,
    StatesWrite,
    SubmissionWrite,
    ValueWrite,
    Write,
)
from bftrainer.errors import NameTakenError, StoreError, UnstorableError
from bftrainer.model.actions import Ended
from bftrainer.model.main_jobs import MainStart
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import TrainerStatus
from bftrainer.ports import Store
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

RETRY_S, MOST_RETRY_S = 0.05, 1.0
"""The pause before a write is tried again: the first, and the longest."""
REST_S = 60.0
"""Between two looks at what is to be tidied up, where the last one failed."""
OVERDUE_S = 5.0
"""Seconds for which tidying comes after all other writes; then it comes before the next one."""
HURRY_S = 0.02
"""Between two steps of tidying up in a hurry, while nothing else is to be done."""


@dataclass(frozen=True, slots=True)
class WriterState:
    """The writer's state: since when (s, monotonic) a write waits or fails, None: none does; since when
    the store has taken none of those that wait; why the last try failed; the number of events, pauses and
    starts of main jobs that the history will lack."""

    behind_since: float | None
    stuck_since: float | None
    error: str
    events_left_out: int
    pauses_left_out: int
    starts_left_out: int


class Writer:
    """Takes writes from the event loop, without ever making it wait, and carries them out one by one.

    `tidy_up` is called in the thread when nothing else is to be done; it returns after how many seconds it
    wants to be called again, 0: after every write. The thread starts with the first write.
    """

    def __init__(
        self, store: Store, telemetry: Telemetry, backlog: Backlog, tidy_up: Callable[[], float]
    ) -> None:
        self._store, self._telemetry, self._backlog = store, telemetry, backlog
        self._tidy_up, self._tidy_at = tidy_up, time.monotonic()
        self._hurry, self._tidied = False, False  # the latter: since the last write
        self._changed = threading.Condition()
        self._in_flight: Write | None = None
        self._taken_at = 0.0
        self._error = ""
        self._failing_since: float | None = None
        self._retry_at, self._retry_s = 0.0, RETRY_S
        self._closing = self._gave_up = False
        self._thread: threading.Thread | None = None
        self.done: Future[None] = Future()
        """Done when everything is stored after `close`; has an error if the thread has ended by a bug."""

    # what the event loop calls

    def add(self, write: Write) -> None:
        """Queue a write behind all others."""
        with self._woken():
            self._backlog.add(write)

    def remember(self, write: ValueWrite) -> None:
        """Queue a value, in place of an earlier one of its key."""
        with self._woken():
            self._backlog.remember(write)

    def pause(self, pause: Pause) -> None:
        """Queue a pause."""
        with self._woken():
            self._backlog.pause(pause)

    def main_started(self, starts: Iterable[MainStart]) -> None:
        """Queue starts of main jobs."""
        with self._woken():
            self._backlog.main_started(starts)

    def report(self, report: Progress) -> None:
        """Queue a trainer's latest report."""
        with self._woken():
            self._backlog.report(report, time.monotonic())

    def has_report(self, trainer: int) -> bool:
        """Return whether a report of this trainer is not stored yet."""
        with self._changed:
            return self._backlog.has_report(trainer)

    def withdraw(self, submission: SubmissionWrite, *, anyway: bool = False) -> bool:
        """Take a submission back that has not been answered; with `anyway` one that has been, too.

        Returns whether it is taken back. If the store has it, or writing it cannot be stopped any more, its
        trainer is cancelled there at once.
        """
        with self._woken():
            if submission.answer.done():
                if anyway and submission.id is not None:
                    self._backlog.add(_undone(submission.id, submission.time))
                return anyway
            submission.withdrawn = True
            return True

    def standing(self) -> WriterState:
        """Return the writer's state at this moment."""
        with self._changed:
            own = self._in_flight
            oldest = own.since if own is not None else self._backlog.oldest()
            since = min((at for at in (oldest, self._failing_since) if at is not None), default=None)
            waits = self._backlog
            left_out = waits.events_left_out, waits.pauses_left_out, waits.starts_left_out
            stuck = self._failing_since or (None if own is None else self._taken_at)
            return WriterState(since, stuck, self._error, *left_out)

    def close(self) -> None:
        """Store at once what waits, then end; `done` tells when."""
        with self._woken():
            self._closing = True

    def give_up(self) -> int:
        """End without storing what waits. Returns how many writes that are."""
        with self._woken():
            self._closing = self._gave_up = True
            return self._backlog.waiting() + (self._in_flight is not None)

    @contextmanager
    def _woken(self) -> Iterator[None]:
        """Around every change: the thread runs, and looks again what is to be done."""
        with self._changed:
            yield
            if self._thread is None:
                # a daemon thread: a disk that never answers keeps no process from ending
                self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
                self._thread.start()
            self._changed.notify()

    # the thread

    def _run(self) -> None:
        try:
            while (write := self._next()) is not None:
                self._carry_out(write)
        except BaseException as error:
            self.done.set_exception(error)
            raise
        self.done.set_result(None)

    def _next(self) -> Write | None:
        """Wait for the next write; None: this is the end."""
        while not self._gave_up:
            with self._changed:
                now = time.monotonic()
                wait_s = self._retry_at - now
                if wait_s <= 0:
                    if self._closing or not self._must_tidy(now):
                        self._in_flight = self._backlog.take(now, at_once=self._closing)
                        if self._in_flight is not None or self._closing:
                            self._tidied, self._taken_at = False, now
                            return self._in_flight
                    wait_s = min(self._backlog.due_at(), self._tidy_at) - now
                if wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
            self._tidy()
        return None

    def _must_tidy(self, now: float) -> bool:
        """Return whether tidying up comes before the next write."""
        return now > self._tidy_at + OVERDUE_S or (self._hurry and not self._tidied)

    def _carry_out(self, write: Write) -> None:
        """Try a write once. If it fails, it is the next one again."""
        try:
            write.carry_out(self._store)
        except (NameTakenError, UnstorableError) as error:
            self._refused(write, error)
        except (StoreError, MemoryError) as error:
            self._failed(write, str(error) or "there is no memory")
            return
        except Exception as error:
            # a bug, or a value that nobody has thought of: one write is lost, and not all that follow it
            log.exception("a write to the store failed")
            self._refused(write, UnstorableError(repr(error)))
        else:
            self._succeeded(write)
        with self._changed:
            self._in_flight, self._error, self._failing_since = None, "", None
            self._retry_at, self._retry_s = 0.0, RETRY_S

    def _succeeded(self, write: Write) -> None:
        with self._changed:
            if isinstance(write, ReportsWrite):
                self._backlog.stored(write.reports)
            elif isinstance(write, SubmissionWrite) and write.id is not None:
                if write.withdrawn:
                    self._backlog.put_back([_undone(write.id, write.time)])
                else:
                    write.answer.set_result(write.id)

    def _failed(self, write: Write, why: str) -> None:
        self._telemetry.metrics.store_failures.inc()
        with self._changed:
            self._backlog.failed(write)
            now = time.monotonic()
            self._in_flight, self._error = None, why
            self._failing_since = self._failing_since or now
            self._retry_at = now + self._retry_s
            self._retry_s = min(2 * self._retry_s, MOST_RETRY_S)

    def _refused(self, write: Write, error: StoreError) -> None:
        """The store will never take this as it is: store what can be stored of it."""
        with self._changed:
            if write.ahead and isinstance(error, NameTakenError):
                write.ahead = False  # the end of who has the name may be among what it went ahead of
                self._backlog.add(write)
                return
            if isinstance(write, SubmissionWrite):
                write.answer.set_result(error)
                return
            smaller = write.smaller()
            self._backlog.put_back(smaller)
            if isinstance(write, ReportsWrite) and not smaller:
                self._backlog.stored(write.reports)
        instead = "stored in parts" if smaller else "left out"
        self._telemetry.trouble("store", error, what=str(write), instead=instead)

    def _tidy(self) -> None:
        try:
            rest_s = self._tidy_up()
        except StoreError as error:
            self._telemetry.trouble("pruning", error)
            rest_s = REST_S
        except Exception as error:  # a bug: old rows stay, and new ones are stored anyway
            log.exception("the store cannot be tidied up")
            self._telemetry.trouble("pruning", repr(error))
            rest_s = REST_S
        self._hurry, self._tidied = not rest_s, True
        self._tidy_at = time.monotonic() + (rest_s or HURRY_S)


def _undone(trainer: int, time_: float) -> StatesWrite:
    """The end of a trainer whose user has been told that nothing was submitted."""
    states = StatesWrite(since=time.monotonic())
    reason = "the store answered too late: its user was told that it was not submitted"
    states.end(Ended(trainer=trainer, status=TrainerStatus.CANCELLED, reason=reason), time_)
    return states
