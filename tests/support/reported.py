"""What a trainer's members report, where a test cares for its number only."""

from __future__ import annotations

from bftrainer.model.reports import Pause, PauseKind, Progress


def report(trainer: int, step: int) -> Progress:
    """A trainer's progress up to a step."""
    return Progress(
        time=1.0,
        trainer=trainer,
        generation=1,
        size=1,
        step=step,
        samples=step,
        epoch=0,
        rate=None,
        metrics={},
    )


def pause(generation: int) -> Pause:
    """The pause of trainer 1 before a generation."""
    return Pause(
        time=1.0,
        trainer=1,
        generation=generation,
        node="n1",
        kind=PauseKind.JOIN,
        size=1,
        step=1,
        pause_s=0.1,
        lost_steps=0,
    )
