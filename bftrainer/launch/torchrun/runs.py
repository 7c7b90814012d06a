"""Finds trainers whose runs come to nothing, and those whose processes train each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bftrainer.launch.deadlines import Later
from bftrainer.launch.torchrun.stores import Stores
from bftrainer.messages.ends import NEVER_SAVED, NO_FURTHER, NO_PROGRESS, RANKS_APART, RANKS_SEEM_APART

MANY_RUNS = 5
SHORT_S = 60.0
"""Seconds of a short run: after several in a row, the user of a script that reports no progress is warned."""
MOST_RUNS = 30
"""Runs that are all short, or in which a script comes no further, after which the trainer fails."""
LOOK_S = 60.0
"""Seconds between checks whether running processes have met."""
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
        """The last run is over, and the most samples ever reported are `furthest`. Returns why no other run
        begins; empty if one does. Of a script that has not called `attach`, only the time is known."""
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
        """A run begins, with `ranks` processes."""
        self.count, self.began_at = self.count + 1, now
        self.number, self.ranks = number, ranks
        self.met, self.seems_apart = (True if ranks == 1 else None), False

    def is_long(self, now: float) -> bool:
        """True if an attached script would have reported progress in the present run by now."""
        return self.count > 0 and now - self.began_at >= SHORT_S

    def note(self, now: float, saves_every_s: float, *, attached: bool) -> str:
        """Warning to the user if all runs so far may come to nothing; else empty."""
        if self.seems_apart:
            return RANKS_SEEM_APART.say(ranks=self.ranks, seconds=now - self.began_at)
        return "" if attached or self.count < MANY_RUNS else self._in_vain(now, saves_every_s)

    def apart(self) -> str:
        """Reason why a trainer failed though all its processes ended well."""
        return RANKS_APART.say(ranks=self.ranks)

    def _in_vain(self, now: float, saves_every_s: float) -> str:
        """Warning after several runs that report no progress; empty if one was long enough for a checkpoint.
        `saves_every_s` is the spec's `checkpoint.interval_s`; 0: it says nothing."""
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
