"""Events of a study and its actions: the words between its core and the daemon."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.model.trainer import TrainerStatus
from bftrainer.search.files.space import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The study has been submitted, or the daemon goes on with it after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The sampler has chosen the parameters of a new trial, `known` as they were asked for."""

    number: int
    params: Params
    known: Params = ()


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
    """The trainer of a trial's run has reported the metric after `samples` samples of the trial."""

    number: int
    run: int
    samples: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """The trainer of a trial's run has reported these figures, and the metric is not among them."""

    number: int
    run: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """The trainer of a trial's run has ended after `samples` samples; `value` is the metric's last one, None
    if it was never reported; `names` are the figures that were."""

    number: int
    run: int
    status: TrainerStatus
    reason: str
    samples: int
    value: float | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSlots:
    """The number of trials that may have a trainer now, where that follows from the pool, and the
    node-seconds that its trainers have held since the last such event. `allowed`: see `trial.Study`."""

    trials: int
    node_s: float = 0.0
    allowed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStudy:
    """Its user pauses the study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prioritise:
    """Its user gives the trainers of its trials another priority."""

    to: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """Its user adds `trials` trials, and has known points tried by the next ones. The study may have `most`
    trials in all: others may have been added since that was counted."""

    trials: int = 0
    points: tuple[Params, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeStudy:
    """Its user lets it go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Its user ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Its deadline or its budget of node-hours has come."""

    reason: str


Event = (
    Begun
    | Asked
    | Started
    | Refused
    | Reported
    | Unmeasured
    | TrialEnded
    | TrialSlots
    | PauseStudy
    | ResumeStudy
    | Cancel
    | Over
    | Prioritise
    | Add
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Choose the parameters of the trial with this number; the `known` ones are given."""

    number: int
    known: Params = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTrial:
    """Submit a trainer for a trial's run."""

    number: int
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrial:
    """End the trainer of a trial's run; it writes a checkpoint."""

    number: int
    run: int
    trainer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Let the sampler know what a trial has shown."""

    number: int


Action = Ask | StartTrial | StopTrial | Tell
