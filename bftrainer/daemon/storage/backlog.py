"""Keeps what is not stored yet: in order, and bounded. Knows no thread and no clock.

At the bound history gives way: pauses first, then the oldest events with their plans and actions. Of reports
each trainer's latest is kept anyway. The latest state of each trainer is never given up: a restarted daemon
goes on from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from bftrainer.daemon.storage.writes import (
    DecisionWrite,
    MainStartsWrite,
    PausesWrite,
    PerformedWrite,
    ReportsWrite,
    StatesWrite,
    StudyWrite,
    ValueWrite,
    Write,
)
from bftrainer.model.main_jobs import MainStart
from bftrainer.model.reports import Pause, Progress

FLUSH_S = 2.0
"""Seconds between two writes of reports."""
PAUSES_AT_ONCE = 500
"""Pauses, or starts of main jobs, that are stored in one transaction."""
MOST_STARTS = 100_000
"""Starts of main jobs that the store keeps: some 10 MB."""
MOST_WRITES = 4000
"""Writes that wait while the store does not answer: some MB."""
ROW_EVERY_S = 5.0
"""Seconds between the rows of one trainer's reports: 1.6 MB for a trainer that runs a day."""
IN_A_ROW = 100
"""Decisions in a row after which values, pauses and reports are stored even if more decisions wait."""


class Backlog:
    """Writes in the order in which the store is to have them. At most `bound` wait; the rows of one
    trainer's reports are at least `row_every_s` apart. Times are monotonic, in seconds.

    What a user waits for (`Write.ahead`) goes by turns with all else: of a user whose study is cancelled
    hundreds of decisions wait.
    """

    def __init__(self, bound: int = MOST_WRITES, row_every_s: float = ROW_EVERY_S) -> None:
        self._bound, self._row_every_s = bound, row_every_s
        self._queue: deque[Write] = deque()
        self._ahead: deque[Write] = deque()
        self._was_ahead = False  # the last one that was taken
        self._values: dict[str, ValueWrite] = {}
        self._pauses: deque[Pause] = deque()
        self._starts: deque[MainStart] = deque()
        self._reports: dict[int, Progress] = {}
        self._flush_at = 0.0
        self._row_at: dict[int, float] = {}  # trainer -> when its last row was stored
        self._in_a_row = 0
        self.events_left_out = 0
        self.pauses_left_out = 0
        self.starts_left_out = 0

    # what comes in

    def add(self, write: Write) -> None:
        """Queue a write behind all others of its kind; what follows on a study goes behind that study."""
        ahead = write.ahead or (isinstance(write, StudyWrite) and any(map(write.continues, self._ahead)))
        (self._ahead if ahead else self._queue).append(write)
        if len(self._queue) > self._bound:
            self._give_way()

    def remember(self, write: ValueWrite) -> None:
        """Queue a value, in place of an earlier one of the same key."""
        self._values[write.key] = write

    def pause(self, pause: Pause) -> None:
        """Queue a pause."""
        self._pauses.append(pause)
        if len(self._pauses) > self._bound:
            self._pauses.popleft()
            self.pauses_left_out += 1

    def main_started(self, starts: Iterable[MainStart]) -> None:
        """Queue starts of main jobs."""
        self._starts.extend(starts)
        while len(self._starts) > self._bound:
            self._starts.popleft()
            self.starts_left_out += 1

    def report(self, report: Progress, now: float) -> None:
        """Queue a trainer's report, in place of an earlier one that is not stored yet."""
        if not self._reports:
            self._flush_at = now + FLUSH_S
        self._reports[report.trainer] = report

    def put_back(self, writes: Iterable[Write]) -> None:
        """Queue writes that were taken and not stored before all others."""
        self._queue.extendleft(reversed(list(writes)))

    def failed(self, write: Write) -> None:
        """A write that was taken is not stored: it is the next one again."""
        if not isinstance(write, ReportsWrite):
            self.put_back([write])
        elif self._queue and isinstance(self._queue[0], DecisionWrite):
            self._queue[0].follows = False  # the reports are still here, and go before a trainer's end

    # what is asked of it

    def has_report(self, trainer: int) -> bool:
        """Return whether a report of this trainer is not stored yet."""
        return trainer in self._reports

    def oldest(self) -> float | None:
        """Return when the first of the queued writes was queued; None: none waits."""
        return min((queue[0].since for queue in (self._queue, self._ahead) if queue), default=None)

    def waiting(self) -> int:
        """Return how many writes wait; all reports count as one, and so do all pauses, and all starts."""
        others = bool(self._reports) + bool(self._pauses) + bool(self._starts)
        return len(self._queue) + len(self._ahead) + len(self._values) + others

    def due_at(self) -> float:
        """Return when there is something to take: now (0), at a time, or never (inf)."""
        if self._queue or self._ahead or self._values or self._pauses or self._starts:
            return 0.0
        return self._flush_at if self._reports else float("inf")

    # what goes out

    def take(self, now: float, *, at_once: bool = False) -> Write | None:
        """Take the next write; None: none is due. With `at_once` reports are due before their time.

        A trainer's end comes after its pauses and its last report.
        """
        self._was_ahead = bool(self._ahead) and not (self._was_ahead and self._queue)
        return self._ahead.popleft() if self._was_ahead else self._take_in_order(now, at_once=at_once)

    def _take_in_order(self, now: float, *, at_once: bool) -> Write | None:
        head = self._queue[0] if self._queue else None
        ends = isinstance(head, DecisionWrite) and head.decision.ended is not None and not head.follows
        if head is None or ends or self._in_a_row >= IN_A_ROW:
            if self._values and not ends:
                return self._values.pop(next(iter(self._values)))
            if self._pauses:
                return self._take_pauses(now)
            if self._starts and not ends:
                return self._take_starts(now)
            if self._reports and (ends or at_once or now >= self._flush_at):
                if isinstance(head, DecisionWrite):
                    head.follows = True  # others' reports do not keep it waiting again
                return self._take_reports(now, whole=ends or at_once)
            self._in_a_row = 0
        if self._queue:
            self._in_a_row += 1
            return self._queue.popleft()
        return None

    def _take_pauses(self, now: float) -> Write:
        some = tuple(self._pauses.popleft() for _ in range(min(PAUSES_AT_ONCE, len(self._pauses))))
        return PausesWrite(since=now, pauses=some)

    def _take_starts(self, now: float) -> Write:
        some = tuple(self._starts.popleft() for _ in range(min(PAUSES_AT_ONCE, len(self._starts))))
        return MainStartsWrite(since=now, starts=some, most=MOST_STARTS)

    def _take_reports(self, now: float, *, whole: bool) -> Write:
        """The reports, and which of them become rows; they stay here until they are `stored`."""
        every_s = self._row_every_s
        self._row_at = {id_: at for id_, at in self._row_at.items() if now - at < every_s}
        rows = frozenset(id_ for id_ in self._reports if whole or id_ not in self._row_at)
        self._row_at |= dict.fromkeys(rows, now)
        self._flush_at, self._in_a_row = now + FLUSH_S, 0
        return ReportsWrite(since=now, reports=tuple(self._reports.values()), rows=rows)

    def stored(self, reports: Sequence[Progress]) -> None:
        """Forget reports that are stored now, or never will be, unless newer ones have come."""
        for report in reports:
            if self._reports.get(report.trainer) is report:
                del self._reports[report.trainer]

    # what gives way

    def _give_way(self) -> None:
        """Merge the oldest quarter of the queue into the states that it leads to."""
        part = len(self._queue) // 4 + 2
        oldest = list(islice(self._queue, part))
        merged = StatesWrite(since=oldest[0].since)
        kept: list[Write] = []
        for write in oldest:
            if isinstance(write, DecisionWrite):
                merged.add(write.decision)
                self.events_left_out += 1
            elif isinstance(write, StatesWrite):
                merged.take_in(write)
            elif not isinstance(write, PerformedWrite):
                kept.append(write)
        for _ in oldest:
            self._queue.popleft()
        self.put_back([merged, *kept])
