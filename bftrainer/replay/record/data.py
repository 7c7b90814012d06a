"""The data of a finished replay that a report shows.

Long tables are stored by column. Times in tables are seconds since the begin of the replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bftrainer.performance.curve import Floats


class Moments(NamedTuple):
    """The state after all that happened at one moment: one row per moment, in order of time.

    `pool` and `used` count nodes, the others are totals since the begin: samples processed, the
    node-time (s) that they take if every node trains on its own, and what rescales and preemptions cost
    (samples, see `SimulatedTrainer`).
    """

    time: Floats
    pool: Floats
    used: Floats
    samples: Floats
    linear_node_s: Floats
    rescale_samples: Floats
    preemption_samples: Floats


class Decisions(NamedTuple):
    """The decisions, in order of time. `preempted` is 1 where a trainer lost nodes within T_fwd, else 0."""

    time: Floats
    t_fwd_s: Floats
    preempted: Floats


class Stays(NamedTuple):
    """Stays of a node in the pool (trainer 0) and with a trainer. `node` is an index of `nodes`."""

    node: Floats
    trainer: Floats
    begin: Floats
    end: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRow:
    """One trainer. Times are None if they lie beyond the replay; `completed`: its work was done."""

    id: int
    name: str
    model: str
    submitted: float
    started: float | None
    ended: float | None
    completed: bool
    samples: float
    node_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some hours of a replay. U and E are None if there was no node or no trainer.

    `nodes` is the pool's mean size. U divides the samples processed by those that the same trainers
    would have processed on as many dedicated nodes: with what was left to do when the window began,
    under the best static allocation, without rescale costs.
    """

    begin: float
    end: float
    nodes: float
    samples: float
    efficiency_u: float | None
    linear_efficiency: float | None
    rescale_samples: float
    preemption_samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """A finished replay. `begin` and `end` are Unix seconds."""

    name: str
    begin: float
    end: float
    parameters: Mapping[str, Any]
    figures: Mapping[str, Any]
    nodes: tuple[str, ...]
    moments: Moments
    decisions: Decisions
    stays: Stays
    trainers: tuple[TrainerRow, ...]
    windows: tuple[Window, ...]
