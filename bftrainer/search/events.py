"""What a study is told of, and what it has done: the words between its core and the daemon."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.model.trainer import TrainerStatus
from bftrainer.search.space import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The study has been submitted, or the daemon goes on with it after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The sampler has chosen the parameters of a new trial."""

    number: int
    params: Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The trainer of a trial's run has been submitted."""

    number: int
    run: int
    trainer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The trainer of a trial's run could not be submitted. `again`: it may be, later."""

    number: int
    run: int
    reason: str
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The trainer of a trial's run has reported the metric after so many samples of the trial."""

    number: int
    run: int
    samples: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The trainer of a trial's run has ended after so many samples; `value` is the metric's last one, None if
    it was never reported; `names` are the figures that were."""

    number: int
    run: int
    status: TrainerStatus
    reason: str
    samples: int
    value: float | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """So many trials may have a trainer now, where that follows from the pool. Its trainers have held so many
    node-seconds since the last such event."""

    trials: int
    node_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Its user pauses the study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prioritise:
    """Its user gives the trainers of its trials another priority."""

    to: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Its user lets it go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Its user ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Its deadline or its budget of node-hours has come."""

    reason: str


Event = (
    Begun | Asked | Started | Refused | Reported | Ended | Room | Pause | Resume | Cancel | Over | Prioritise
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Choose the parameters of the trial with this number."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Submit a trainer for a trial's run."""

    number: int
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the trainer of a trial's run; it writes a checkpoint."""

    number: int
    run: int
    trainer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Let the sampler know what a trial has shown."""

    number: int


Action = Ask | Start | Stop | Tell
