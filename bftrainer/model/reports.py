"""Reports on trainers that are kept for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus

Message = dict[str, Any]
"""One message between daemon, agent and worker: JSON with a "type"."""

MEASURE_S = 2.0
"""Seconds over which a speed on a new number of nodes is measured."""
MEASURE_AGAIN_S = 10.0
"""Seconds over which it is measured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The last report of a trainer's rank 0; `samples` and `step` are committed by all members.

    `of`: the samples of the whole training, as its script says; None: it does not. `warned`: the last
    warnings of its script, the latest last. `saved`: the step of the last checkpoint, as far as it knows.
    """

    time: float
    trainer: int
    generation: int
    size: int
    step: int
    samples: int
    epoch: int
    rate: float | None
    metrics: Mapping[str, float]
    of: int | None = None
    warned: tuple[str, ...] = ()
    saved: int | None = None


class PauseKind(StrEnum):
    """Change made by a rescale."""

    JOIN = "join"
    """Members came, and none was lost; others may have left."""
    LEAVE = "leave"
    """Members left with notice, and none came."""
    LOSS = "loss"
    """A member died, or its node was taken."""
    RESTART = "restart"
    """No member stayed: training goes on from a checkpoint, or begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One member's pause in one rescale: from its last step before to the first it could take after.

    `lost_steps` counts the steps that had been reported and were not in the state that went on.
    """

    time: float
    trainer: int
    generation: int
    node: str
    kind: PauseKind
    size: int
    step: int
    pause_s: float
    lost_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSummary:
    """Entry of a trainer of the store in a list.

    `work`: the samples that its spec asks for; None: no limit. `of`, `warned` and `saved` are as in
    `Progress`.
    """

    id: int
    user: str
    name: str
    status: TrainerStatus
    reason: str
    submitted_at: float
    ended_at: float | None
    samples: int
    step: int
    epoch: int
    rate: float | None
    metrics: Mapping[str, float]
    work: int | None
    of: int | None = None
    warned: tuple[str, ...] = ()
    saved: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrainer:
    """A trainer in the store; `engine` is what the engine goes on with after a restart."""

    id: int
    spec: TrainerSpec
    status: TrainerStatus
    reason: str
    submitted_at: float
    ended_at: float | None
    samples: int
    step: int
    epoch: int
    rate: float | None
    metrics: Mapping[str, float]
    engine: Trainer
    of: int | None = None
    warned: tuple[str, ...] = ()
    saved: int | None = None

    @property
    def summary(self) -> TrainerSummary:
        """Its entry in a list."""
        return TrainerSummary(
            id=self.id,
            user=self.spec.user,
            name=self.spec.name,
            status=self.status,
            reason=self.reason,
            submitted_at=self.submitted_at,
            ended_at=self.ended_at,
            samples=self.samples,
            step=self.step,
            epoch=self.epoch,
            rate=self.rate,
            metrics=self.metrics,
            work=self.spec.samples,
            of=self.of,
            warned=self.warned,
            saved=self.saved,
        )


def whole(work: int | None, of: int | None, samples: int) -> int | None:
    """The samples of a whole training, of which `samples` are done; None where nobody says how many.

    They are `work`, which the spec asks for, or fewer if the script says so (`of`). What a script says counts
    only until it has trained on more.
    """
    known = [count for count in (work, of if of is not None and of >= samples else None) if count]
    return min(known, default=None)


Row = dict[str, Any]
"""A row for display, ready for JSON."""
