"""Finds trainers whose runs come to nothing, and those whose processes train each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bftrainer.launch.deadlines import Later
from bftrainer.launch.torchrun.stores import Stores
from bftrainer.messages.ends import NEVER_SAVED, NO_FURTHER, NO_PROGRESS, RANKS_APART, RANKS_SEEM_APART

MANY_RUNS = 5
SHORT_S = 60.0
"""After so many runs that all were shorter, the user of a script that tells of no progress is told so."""
MOST_RUNS = 30
"""After so many that were all short, or in which a script came no further than before, the trainer fails."""
LOOK_S = 60.0
"""How often to look whether processes that run have met."""
ANSWER_S = 20.0
"""A store that does not say by then whether it was used is not waited for."""


@dataclass(slots=True)
class Runs:
    """The runs of a trainer: the present one, and those before it that may have come to nothing.

    Attributes:
        met: Whether the present run's processes formed a group; None: nobody has asked since they ended.
        seems_apart: They had formed none when they were last looked at.
    """

    count: int = 0  # in a row, each too short for a checkpoint or without further progress
    began_at: float = 0.0
    longest_s: float = 0.0  # of the runs before
    furthest: int = 0  # samples, before the present run
    number: int = 0
    ranks: int = 0
    met: bool | None = None
    seems_apart: bool = False

    def ended(self, now: float, furthest: int, saves_every_s: float, *, attached: bool) -> str:
        """The last run is over, and the most samples ever told are `furthest`. Returns why no other run is to
        begin; empty if one is. Of a script that has not called `attach`, only the time is known."""
        lasted_s = now - self.began_at if self.count else 0.0
        if furthest > self.furthest or (not attached and lasted_s >= (saves_every_s or SHORT_S)):
            self.count, self.longest_s, lasted_s = 0, 0.0, 0.0
        self.furthest, self.longest_s = furthest, max(self.longest_s, lasted_s)
        if self.count <= MOST_RUNS:
            return ""
        if attached:
            return NO_FURTHER.say(runs=self.count, samples=furthest)
        return self._in_vain(now, saves_every_s)

    def begin(self, number: int, ranks: int, now: float) -> None:
        """A run begins, with so many processes."""
        self.count, self.began_at = self.count + 1, now
        self.number, self.ranks = number, ranks
        self.met, self.seems_apart = (True if ranks == 1 else None), False

    def is_long(self, now: float) -> bool:
        """Whether the present run is so long that an attached script would have told of its progress."""
        return self.count > 0 and now - self.began_at >= SHORT_S

    def note(self, now: float, saves_every_s: float, *, attached: bool) -> str:
        """What the user is told of the runs so far, if they may all come to nothing; else empty."""
        if self.seems_apart:
            return RANKS_SEEM_APART.say(ranks=self.ranks, seconds=now - self.began_at)
        return "" if attached or self.count < MANY_RUNS else self._in_vain(now, saves_every_s)

    def apart(self) -> str:
        """Why a trainer has failed whose processes have all ended well."""
        return RANKS_APART.say(ranks=self.ranks)

    def _in_vain(self, now: float, saves_every_s: float) -> str:
        """What is told of so many runs that tell of no progress; empty if one was long enough for a
        checkpoint. `saves_every_s` is the spec's `checkpoint.interval_s`; 0: it says nothing."""
        longest_s = max(self.longest_s, now - self.began_at)
        if longest_s >= (saves_every_s or SHORT_S):
            return ""
        if saves_every_s:
            return NEVER_SAVED.say(runs=self.count, longest=longest_s, every=saves_every_s)
        return NO_PROGRESS.say(runs=self.count, longest=longest_s)


class Meetings:
    """Finds out whether the processes of a run have met at its store, as all do that form a group."""

    def __init__(self, stores: Stores, later: Later) -> None:
        self._stores, self._later = stores, later

    def watch(self, trainer: int, runs: Runs) -> None:
        """Look now and then, until they have met, for their user's sake."""
        number = runs.number

        def seen(is_used: bool | None) -> None:
            if runs.number == number:
                runs.seems_apart = is_used is False
                if runs.seems_apart:
                    self.watch(trainer, runs)

        def look() -> None:
            if runs.number == number and runs.met is None:
                self._stores.used(trainer, number, seen)

        if runs.ranks > 1:
            self._later(LOOK_S, look)

    def ask(self, trainer: int, runs: Runs, then: Callable[[], None]) -> None:
        """They have ended: find out whether they ever met, note it, and call `then`."""
        number = runs.number

        def answered(is_used: bool | None) -> None:
            if runs.met is None and runs.number == number:
                runs.met, runs.seems_apart = is_used is not False, False
                then()

        if runs.met is None:
            self._later(ANSWER_S, lambda: answered(None))
            self._stores.used(trainer, number, answered)
