"""Contains errors in decisions: no trainer of one user ends the decisions about all. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.engine.decide import candidates
from bftrainer.engine.question import problem_of
from bftrainer.engine.state import Solve, State, Step
from bftrainer.engine.step import step
from bftrainer.model.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Contained:
    """The result of an event. `error` is what went wrong, None if nothing did; `culprits` are the trainers of
    which the engine cannot even state the problem, with the reason."""

    step: Step
    error: Exception | None = None
    culprits: tuple[tuple[int, str], ...] = ()


def contained(state: State, event: Event, solve: Solve) -> Contained:
    """Return the result of `step` for an event.

    If that fails, the event's facts count and the plan stays as it is: nodes that left are given up. If even
    that fails, nothing has happened.
    """
    try:
        return Contained(step=step(state, event, solve))
    except Exception as error:  # noqa: BLE001  it is returned
        culprits = _culprits(state, event.time)
        try:
            return Contained(step=step(state, event, solve, plan=False), error=error, culprits=culprits)
        except Exception as worse:  # noqa: BLE001  it is returned
            worse.__context__ = error
            return Contained(step=Step(state=state), error=worse, culprits=culprits)


def _culprits(state: State, now: float) -> tuple[tuple[int, str], ...]:
    found = []
    for trainer in candidates(state, now):
        try:
            problem_of(state, (trainer,), now)
        except Exception as error:  # noqa: BLE001  it is returned
            found.append((trainer.id, f"{type(error).__name__}: {error}"))
    return tuple(found)
