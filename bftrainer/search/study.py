"""A study as its user specifies it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from bftrainer.model.trainer import TrainerSpec
from bftrainer.search.files.space import Parameter, Params

SPARE = 2
"""Trials beyond those with nodes that have a trainer where the user leaves it to the pool: a node that
becomes free finds one that waits."""


class Sampler(StrEnum):
    """Ways to choose the parameters of the next trial."""

    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"
    CMAES = "cmaes"


class StoppingKind(StrEnum):
    """Rules for ending trials early."""

    NONE = "none"  # none
    HALVING = "halving"  # successive halving: all trials reach a rung, then the best part goes on
    HYPERBAND = "hyperband"  # several brackets of successive halving, which begin at different rungs
    ASHA = "asha"  # successive halving that promotes a trial as soon as it is among the best of its rung
    MEDIAN = "median"  # a trial that is worse than the median of the others at as many samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Parameters of ending trials early: with rungs from `least` samples on, each `eta` times as far as the
    one before; or by the median, once a trial has `least` samples and `startup` others have a result
    there."""

    kind: StoppingKind = StoppingKind.NONE
    least: int = 0
    eta: int = 0
    startup: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """A study as its user asks for it.

    Attributes:
        trainer: The template of each trial's trainer. `{name}` in a word of its command, or in a value of its
            environment, stands for the value of a parameter; `{trial}` for the trial's number, `{seed}` for
            its seed, `{params}` for all parameters as JSON.
        metric: The figure that the script reports and that counts.
        budget: Samples that a trial which is kept trains on.
        parallelism: Trials with a trainer at a time, at most; None: as many as get nodes.
        retries: Times that a trial whose trainer fails is restarted.
        give_up_after: Failed trials after which it ends if none has reported the metric; None: it goes on.
        deadline_s: Time after its submission when the study ends (s); None: it has no deadline.
        own_folders: Whether each trial runs in a folder of its own; else all run in the workdir.
        storage: The storage of Optuna that is kept like it, for dashboards; None: none.
        node_hours: Node-hours after which it ends; None: it has no such bound.
        target: When a trial has reported a value as good as this, it ends; None: it has no such bound.
        plateau: Results in a row without a new best after which it ends; None: it goes on.
        change: By how much a result has to be better than the best for that.
        points: Known points, which the first trials try: values of some or all parameters.
        warm_start: The study of the same user, by name or number, from whose results the sampler learns.
        added: Trials that were added since it was submitted, each number at once; they are part of `trials`.
        seed: Seed of samplers and trials. Where a file gives none, it follows from the name.
    """

    name: str
    trainer: TrainerSpec
    space: tuple[Parameter, ...]
    metric: str
    maximize: bool
    trials: int
    budget: int
    stopping: Stopping = Stopping()
    sampler: Sampler = Sampler.TPE
    parallelism: int | None = None
    retries: int = 1
    give_up_after: int | None = 3
    deadline_s: float | None = None
    node_hours: float | None = None
    target: float | None = None
    plateau: int | None = None
    change: float = 0.0
    points: tuple[Params, ...] = ()
    warm_start: str | None = None
    added: tuple[int, ...] = ()
    seed: int = 0
    storage: str | None = None
    own_folders: bool = True

    def better(self, one: float, other: float) -> bool:
        """Return whether a value of the metric is better than another."""
        return one > other if self.maximize else one < other

    def order(self, value: float) -> float:
        """A key that sorts values of the metric: the best first."""
        return -value if self.maximize else value


def seed_of(study: int, trial: int) -> int:
    """The seed of a trial, from the study's own and the trial's number: from 0 to 2**31 - 1."""
    return int.from_bytes(hashlib.sha256(f"{study}:{trial}".encode()).digest()[:4], "big") >> 1


def named_seed(name: str) -> int:
    """The seed of a study that gives none, from its name: two studies do not try the same points."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
