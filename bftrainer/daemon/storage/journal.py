"""Stores decisions before they are acted on, trainers' reports, and what users submit.

The machine does not wait for our disk: a thread writes. A decision waits for it for a moment, so that what is
decided is stored before it is done. While the store does not answer, the daemon goes on in memory and says so
in its status; everything is written, in order, when the store works again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from bftrainer.daemon.storage.writer import Writer
from bftrainer.daemon.storage.writes import (
    DecisionWrite,
    PerformedWrite,
    StatesWrite,
    StoredDecision,
    StudyWrite,
    SubmissionWrite,
    ValueWrite,
)
from bftrainer.errors import StoreError
from bftrainer.model.actions import Ended
from bftrainer.model.main_jobs import MainStart
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.model.trainer import TrainerSpec
from bftrainer.ports import Clock
from bftrainer.telemetry.log import note
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

WAIT_S = 0.1
"""Seconds that a decision waits to be stored; then it is acted on anyway."""
SLOW_S = 1.0
"""Seconds without an answer after which the store is trouble."""
ANSWER_S = 5.0
"""Seconds that a user waits for a trainer to be stored."""
CLOSE_S = 10.0
"""Seconds that the daemon's end waits for unfinished writes."""
LOOK_S = 0.25
"""Seconds between two reports on the store to the register of troubles."""


class StoreJournal:
    """Implements `ports.Journal`, and has decisions and trainers stored. Belongs to the event loop, which it
    never keeps waiting; only `submit` raises `StoreError`."""

    def __init__(self, writer: Writer, telemetry: Telemetry, clock: Clock) -> None:
        self._writer, self._telemetry, self._clock = writer, telemetry, clock
        self._latest: dict[int, Progress] = {}
        self._unfinished: set[int] = set()
        self._told_of = 0  # events and pauses that were left out
        self._over: set[int] = set()  # trainers that have ended, with a report that may not be stored yet
        self.reported: Callable[[Progress], None] = lambda report: None
        """Called with each report of a trainer."""
        self.late: Callable[[Progress], None] = lambda report: None
        """Called with each report of a trainer that has ended: its last workers tell how far they came."""

    def begin(self, trainer: int) -> None:
        """Keep this trainer's latest report in memory until the trainer has ended."""
        self._unfinished.add(trainer)

    def latest(self, trainer: int) -> Progress | None:
        """Return a trainer's last report, while it may be newer than the store's."""
        return self._latest.get(trainer)

    # decisions

    async def decided(self, decision: StoredDecision) -> DecisionWrite:
        """Have a decision stored, after those before it. Returns when it is, or after `WAIT_S`; at once while
        an earlier write has waited for longer than that."""
        if decision.ended is not None:
            self._unfinished.discard(decision.ended.trainer)
            self._over.add(decision.ended.trainer)
        write = DecisionWrite(since=time.monotonic(), decision=decision)
        behind = self._behind_s() > WAIT_S
        self._writer.add(write)
        if not behind:
            await asyncio.wait([asyncio.wrap_future(write.stored)], timeout=WAIT_S)
        return write

    def performed(self, decision: DecisionWrite) -> None:
        """Have stored that the actions of a decision have been carried out."""
        if decision.decision.actions:
            now = self._clock.now()
            self._writer.add(PerformedWrite(since=time.monotonic(), of=decision, time=now))

    # ports.Journal

    def progressed(self, progress: Progress) -> None:
        """Keep a trainer's latest report, and have it stored soon."""
        self._latest[progress.trainer] = progress
        if progress.trainer not in self._unfinished:
            self._over.add(progress.trainer)
            self.late(progress)
        self._writer.report(progress)
        self.reported(progress)

    def pause(self, pause: Pause) -> None:
        """Have stored how long a member stood still in a rescale, and count it."""
        self._telemetry.paused(pause)
        self._writer.pause(pause)

    def main_started(self, starts: Sequence[MainStart]) -> None:
        """Have stored how long main jobs waited."""
        if starts:
            self._writer.main_started(starts)

    # what users and admins order

    async def submit(self, spec: TrainerSpec, now: float, *, ahead: bool = False) -> int:
        """Store a new trainer, and return its id. With `ahead` a user waits for that: it goes before what
        waits to be stored.

        Raises:
            NameTakenError: an unfinished trainer of the user has its name.
            StoreError: nothing was submitted.
        """
        self.check_answers()
        submission = SubmissionWrite(since=time.monotonic(), spec=spec, time=now, ahead=ahead)
        self._writer.add(submission)
        try:
            await asyncio.wait([asyncio.wrap_future(submission.answer)], timeout=ANSWER_S)
        except asyncio.CancelledError:  # the client has gone, or the daemon ends
            self._writer.withdraw(submission, anyway=True)
            raise
        if self._writer.withdraw(submission):
            raise self._no_answer()
        answer = submission.answer.result()
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def check_answers(self) -> None:
        """Raise `StoreError` if the store has not answered for long: what is to be stored waits in memory."""
        if self._stuck_s() > ANSWER_S:
            raise self._no_answer()

    def _no_answer(self) -> StoreError:
        why = self._writer.standing().error or f"it has been busy for {self._stuck_s():.0f} s"
        return StoreError(f"the store does not answer: {why}; nothing was submitted, try again later")

    def keep_study(
        self, study: StoredStudy, trials: Sequence[StoredTrial], *, ahead: bool = False
    ) -> Future[None]:
        """Have a study stored, with those of its trials that have changed, before all that is stored later.
        Any thread may call it. Returns what is done when the store has them. `ahead`: see `submit`; the study
        is a new one."""
        write = StudyWrite(since=time.monotonic(), study=study, trials=trials, ahead=ahead)
        self._writer.add(write)
        return write.stored

    def ended(self, ended: Ended) -> None:
        """Have the end stored of a trainer that the engine does not know."""
        states = StatesWrite(since=time.monotonic())
        states.end(ended, self._clock.now())
        self._writer.add(states)

    def remember(self, key: str, value: str) -> None:
        """Have a value stored under a key."""
        self._writer.remember(ValueWrite(since=time.monotonic(), key=key, value=value))

    # the store

    async def watch(self) -> None:
        """Note how the store is, and forget reports of trainers that have ended, for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Note whether the store works, and forget what it has of trainers that have ended.

        Raises:
            Exception: what the writer's thread has ended with, a bug: the daemon must be restarted.
        """
        if self._writer.done.done():
            self._writer.done.result()
        trouble = self._trouble()
        self._telemetry.condition("store", trouble)
        own = self._writer.standing()
        more = own.events_left_out + own.pauses_left_out + own.starts_left_out - self._told_of
        if more:
            self._told_of += more
            self._telemetry.bounded("max_writes_waiting", times=more)
        for trainer in [id_ for id_ in self._over if not self._writer.has_report(id_)]:
            self._over.remove(trainer)
            self._latest.pop(trainer, None)

    def _behind_s(self) -> float:
        """For how long writes have waited or failed."""
        since = self._writer.standing().behind_since
        return 0.0 if since is None else time.monotonic() - since

    def _stuck_s(self) -> float:
        """For how long the store has taken nothing of what waits."""
        since = self._writer.standing().stuck_since
        return 0.0 if since is None else time.monotonic() - since

    def _trouble(self) -> str:
        """Return what is wrong with the store, in words; empty: it works."""
        own, behind_s = self._writer.standing(), self._stuck_s()
        if not own.error and behind_s < SLOW_S:
            return ""
        reason = own.error or "it is busy"
        said = (
            f"the store has not taken anything for {behind_s:.0f} s: {reason}; decisions are kept in memory "
            "and written when it does"
        )
        left_out = self._left_out()
        return f"{said}; {left_out}" if left_out else said

    def _left_out(self) -> str:
        """Return what the history lacks since the daemon began, in words; empty: it is whole."""
        own = self._writer.standing()
        if not own.events_left_out and not own.pauses_left_out and not own.starts_left_out:
            return ""
        main = f" and {own.starts_left_out} starts of main jobs" if own.starts_left_out else ""
        return f"the history lacks {own.events_left_out} events, {own.pauses_left_out} pauses{main}"

    async def close(self) -> None:
        """Have stored what is not stored yet, for `CLOSE_S` at most."""
        self._writer.close()
        await asyncio.wait([asyncio.wrap_future(self._writer.done)], timeout=CLOSE_S)
        lost = self._writer.give_up()
        if lost:
            error = self._writer.standing().error
            note(log, "not_stored", logging.ERROR, writes=lost, reason=error)
