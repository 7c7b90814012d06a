"""The trainers in brief, in memory: status, metrics and lists of what has not ended ask no disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bftrainer.model.actions import Ended
from bftrainer.model.events import Event, TrainerSubmitted
from bftrainer.model.reports import Progress, TrainerSummary
from bftrainer.model.trainer import TrainerSpec, TrainerStatus

RECENT = 1000
"""Trainers that ended last and are kept: the store may not have their ends yet."""


class Index:
    """Every trainer that has not ended, and of each user how many have. The event loop alone uses it, but for
    `get`, which any thread may call.

    It begins with what the store has (`load`) and follows each decision (`took`), so that it says at any time
    what the store says once all decisions are stored.
    """

    def __init__(self) -> None:
        self._unfinished: dict[int, TrainerSummary] = {}  # in order of arrival
        self._by_user: dict[str, dict[int, TrainerSummary]] = {}
        self._ended: dict[str, Counter[TrainerStatus]] = {}
        self._recent: dict[int, TrainerSummary] = {}

    def load(
        self, unfinished: Sequence[TrainerSummary], ended: Mapping[str, Mapping[TrainerStatus, int]]
    ) -> None:
        """Begin with the store's unfinished trainers, and with how many of each user ended how."""
        for memory in (self._unfinished, self._by_user, self._recent):
            memory.clear()
        for summary in unfinished:
            self._put(summary)
        self._ended = {user: Counter(counts) for user, counts in ended.items()}

    def submitted(self, trainer: int, spec: TrainerSpec, time: float) -> None:
        """A trainer is stored. Idempotent."""
        if trainer not in self._recent:  # it may have ended before its submission is answered
            self._put(_new(trainer, spec, time))

    def took(self, event: Event, ended: Ended | None, latest: Progress | None) -> None:
        """The engine has taken an event, which has ended a trainer perhaps; `latest` is what that one last
        reported."""
        if isinstance(event, TrainerSubmitted):
            self.submitted(event.trainer, event.spec, event.time)
        if ended is not None:
            self.end(ended, event.time, latest)

    def of(self, user: str | None) -> list[TrainerSummary]:
        """The trainers of a user (None: of all) that have not ended, in order of arrival."""
        return list(self._of(user).values())

    def get(self, trainer: int) -> TrainerSummary | None:
        """A trainer that has not ended; None if there is none with this number."""
        return self._unfinished.get(trainer)

    def named(self, user: str, name: str) -> TrainerSummary | None:
        """A user's trainer of this name that has not ended: there is one at most."""
        return next((t for t in self._of(user).values() if t.name == name), None)

    def count(self, user: str | None) -> int:
        """Return how many have not ended, of a user or of all (None)."""
        return len(self._of(user))

    def count_ended(self, user: str | None) -> Counter[TrainerStatus]:
        """Count the ended ones by status, of a user or of all (None)."""
        if user is not None:
            return Counter(self._ended.get(user, {}))
        return sum(self._ended.values(), Counter[TrainerStatus]())

    def recent(self, user: str | None) -> list[TrainerSummary]:
        """Those that ended last, of a user or of all (None), as far as they ended since the daemon began."""
        return [t for t in self._recent.values() if user in (None, t.user)]

    def over(self, trainer: int) -> TrainerSummary | None:
        """A trainer that has ended lately: the store may still say that it has not."""
        return self._recent.get(trainer)

    def _of(self, user: str | None) -> dict[int, TrainerSummary]:
        return self._unfinished if user is None else self._by_user.get(user, {})

    def _put(self, summary: TrainerSummary) -> None:
        for memory in (self._unfinished, self._by_user.setdefault(summary.user, {})):
            late = summary.id not in memory and memory and summary.id < next(reversed(memory))
            memory[summary.id] = summary
            if late:  # two were submitted at the same time
                in_order = sorted(memory.items())
                memory.clear()
                memory.update(in_order)

    def end(self, ended: Ended, time: float, latest: Progress | None) -> None:
        """A trainer has ended; `latest` is what it last reported. Idempotent."""
        before = self._unfinished.pop(ended.trainer, None)
        if before is None:
            return
        own = self._by_user[before.user]
        del own[before.id]
        if not own:
            del self._by_user[before.user]
        self._ended.setdefault(before.user, Counter())[ended.status] += 1
        came = before if latest is None else _reported(before, latest)
        over = replace(came, status=ended.status, reason=ended.reason, ended_at=time, rate=None)
        self._recent[before.id] = over
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]

    def reported(self, report: Progress) -> None:
        """A trainer that has ended lately came so far, as its last worker has told. Others are ignored."""
        over = self._recent.get(report.trainer)
        if over is not None:
            self._recent[over.id] = _reported(over, report)


def _reported(before: TrainerSummary, last: Progress) -> TrainerSummary:
    """A trainer with what it last reported."""
    return replace(
        before,
        step=last.step,
        samples=last.samples,
        epoch=last.epoch,
        rate=last.rate,
        metrics=last.metrics,
        of=last.of,
        warned=last.warned,
        saved=last.saved,
    )


def _new(trainer: int, spec: TrainerSpec, time: float) -> TrainerSummary:
    """A trainer that has done nothing yet."""
    return TrainerSummary(
        id=trainer,
        user=spec.user,
        name=spec.name,
        status=TrainerStatus.WAITING,
        reason="",
        submitted_at=time,
        ended_at=None,
        samples=0,
        step=0,
        epoch=0,
        rate=None,
        metrics={},
        work=spec.samples,
    )
