"""Actions of the engine: it starts, regroups and stops workers."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.model.trainer import TrainerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """Start a worker of a trainer on a node. The worker reports when it is warm.

    `attempt` counts the failures before; above 0, the launcher waits before it starts the worker.
    """

    trainer: int
    generation: int
    node: str
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Publish a membership, in rank order. `leaving` workers leave at the same step boundary.

    Without members, the trainer writes a checkpoint and stops.
    """

    trainer: int
    generation: int
    members: tuple[str, ...]
    leaving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Stop a worker that is not a member: it was starting, or the trainer has ended."""

    trainer: int
    generation: int
    node: str


Action = StartWorker | Regroup | StopWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A trainer's end, for the store."""

    trainer: int
    status: TrainerStatus
    reason: str = ""
