"""Estimates when trainers will end, and get nodes, from what is known of their own user's trainers.

What others' trainers will do is nobody's business: where it counts, the answer is that it is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bftrainer.daemon.answers.views.trainers import OutlookView, TrainerView
from bftrainer.engine.queueing.queue import Shape, shape
from bftrainer.engine.queueing.turns import WaitingTurn, first_in_line, turns, usual_share
from bftrainer.engine.queueing.waiting import Shortage
from bftrainer.engine.state import State
from bftrainer.model.trainer import Points, Trainer
from bftrainer.performance import curve
from bftrainer.performance.estimate import known_speeds
from bftrainer.performance.outlook import Outlook, after_waiting, outlook

NOT_MEASURED = "its speed has not been measured yet"
NO_SPEED = "its speed is not known: its program has not run here yet, and its spec has no curve"
NO_END = "when it gets nodes is not known, as no end is known of trainers that hold them or come before it"


@dataclass(frozen=True, kw_only=True)
class Outlooks:
    """The outlooks at one moment, `time`; each is computed when it is asked for.

    `left` are the samples that a trainer has left, None without an amount of work; `rate` is its speed now in
    samples/s, None if it does not train.
    """

    time: float
    state: State
    shortage: Callable[[], Shortage]
    left: Callable[[Trainer], int | None]
    rate: Callable[[Trainer], float | None]
    _turns: dict[str, Mapping[int, float]] = field(default_factory=dict)  # by user
    _speeds: dict[Shape, tuple[Points, int] | None] = field(default_factory=dict)

    def of(self, trainer: Trainer, view: TrainerView, *, with_best: bool = False) -> OutlookView | None:
        """Return when a trainer that has not ended will probably do so; None if it has no amount of work.

        `with_best`: also how soon at least, for which its speeds have to be estimated. Those of trainers that
        wait are in any case.
        """
        left, done = self.left(trainer), view["samples"]
        if left is None:
            return None
        best = self._best(trainer) if with_best or not trainer.members else None
        age_s, rate = self.time - view["submitted_at"], view["rate"]
        past = outlook(left, done=done, age_s=age_s, rate=rate, best=best)
        if trainer.members:
            return _view(past, None, NOT_MEASURED)
        return self._waiting(trainer, past, left)

    def ends_in_s(self, trainer: Trainer) -> float | None:
        """In how many seconds a trainer that holds nodes will end on as many; None if that is not known."""
        left, rate = self.left(trainer), self.rate(trainer)
        if left is None:
            return None
        rate = rate or self._speed(trainer, len(trainer.nodes))
        return left / rate if rate else None

    def _waiting(self, trainer: Trainer, past: Outlook, left: int) -> OutlookView:
        """The outlook of a trainer that has no members yet."""
        waits_s: float | None = 0.0
        if not trainer.nodes:
            if why := self.shortage().blocked(trainer):
                return _view(past, None, f"when it gets nodes is not known: {why}")
            waits_s = self._turns_of(trainer.spec.user).get(trainer.id)
        if waits_s is None:
            return _view(past, None, NO_END)
        usual = self._speed(trainer, len(trainer.nodes) or self._usual(trainer))
        slowest = self._speed(trainer, trainer.spec.n_min)
        if not usual or not slowest:
            return _view(past, waits_s, NO_SPEED)
        return _view(after_waiting(past, left, waits_s=waits_s, usual=usual, slowest=slowest), waits_s)

    def _best(self, trainer: Trainer) -> float | None:
        """A trainer's estimated speed on the most nodes that it may get; None if nothing is known of it."""
        known, spec = self._known(trainer), trainer.spec
        if known is None:
            return None
        most = spec.fitting(min(known[1], len(self.state.pool) or spec.n_max)) or spec.n_min
        return curve.rate(known[0], most)

    def _speed(self, trainer: Trainer, nodes: int) -> float | None:
        known = self._known(trainer)
        return curve.rate(known[0], trainer.spec.fitting(nodes)) if known else None

    def _known(self, trainer: Trainer) -> tuple[Points, int] | None:
        key = self.state.waiting.shapes.get(trainer.id) or shape(trainer)
        if key not in self._speeds:
            self._speeds[key] = known_speeds(trainer, self.state.programs)
        return self._speeds[key]

    def _usual(self, trainer: Trainer) -> int:
        """On how many nodes a trainer will probably train that has none."""
        return trainer.spec.fitting(self._share) or trainer.spec.n_min

    @cached_property
    def _share(self) -> int:
        return usual_share(self.state)

    @cached_property
    def _holders(self) -> list[Trainer]:
        return [t for t in self.state.active.values() if t.nodes]

    @cached_property
    def _line(self) -> list[Trainer]:
        return first_in_line(self.state)

    def _turns_of(self, user: str) -> Mapping[int, float]:
        """Return when those that wait get nodes, as far as this user's trainers tell."""
        if user not in self._turns:
            state = self.state
            self._turns[user] = turns(
                len(state.pool.difference(*(t.nodes for t in self._holders))),
                state.settings.max_parallel,
                [(len(t.nodes), self.ends_in_s(t) if t.spec.user == user else None) for t in self._holders],
                (self._turn(t, user) for t in self._line),
            )
        return self._turns[user]

    def _turn(self, trainer: Trainer, user: str) -> WaitingTurn:
        def lasts_s(nodes: int) -> float | None:
            left = self.left(trainer) if trainer.spec.user == user else None
            speed = None if left is None else self._speed(trainer, nodes)
            return left / speed if left is not None and speed else None

        return WaitingTurn(trainer.id, trainer.spec.n_min, self._usual(trainer), lasts_s)


def _view(found: Outlook, waits_s: float | None, unknown: str = "") -> OutlookView:
    return {
        "early": found.early,
        "likely": found.likely,
        "late": found.late,
        "waits": waits_s,
        "unknown": "" if found.likely is not None else unknown,
    }
