"""Plans that are due though nothing happens: users have their turns, and trainers weights, by time alone."""

from __future__ import annotations

from bftrainer.engine.queueing.fair_shares import TURN_S
from bftrainer.engine.state import State
from bftrainer.model.events import Event, PlanDue
from bftrainer.model.policy import WeightsBy


class PlansDue:
    """Says which `PlanDue` is to come, for all that feed the engine: the daemon and replays alike."""

    def __init__(self) -> None:
        self._at: float | None = None  # the earliest that is under way

    def after(self, event: Event, state: State) -> PlanDue | None:
        """The one that is to come now that `event` has led to `state`; None: no other than is under way."""
        if isinstance(event, PlanDue) and self._at is not None and event.time >= self._at:
            self._at = None  # an earlier one may come before that which is expected, and starts no series
        moment = due(state, event.time)
        if moment is None or (self._at is not None and moment >= self._at):
            return None
        self._at = moment
        return PlanDue(time=moment)


def due(state: State, now: float) -> float | None:
    """Return when to plan again though nothing happens; None: there is no reason to."""
    moments = [t.steady_until for t in state.active.values() if t.nodes and t.steady_until > now]
    several = len(state.active) + len(state.waiting) > 1 and bool(state.pool)
    by_time = several and state.settings.weights_by is not WeightsBy.SPEC
    return min(moments + [now + TURN_S] * (state.ledger.has_turns or by_time), default=None)
