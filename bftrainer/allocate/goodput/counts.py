"""Workers for each trainer: a sum over trainers of what their speed-ups count, maximised exactly.

By its rank, a trainer j with n workers counts rank_j * (r_j(n) s_j(n))^p: s is its goodput over that of one
worker (Pollux, equation 15), and r the part of the time to come that a change of n leaves it to train:

    r = (h - restart) / h,    h = min(horizon, T + restart)

where T is how long the trainer is expected to train on; r is 1 where n stays. Pollux's own objectives are
sums as well: the weighted mean of r s (equation 14), and the final version's harmonic mean of r s. Its own
costs of a change are there for comparison, see `ChangeCost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from bftrainer.allocate.goodput.weights import by_rank, by_service
from bftrainer.performance.curve import Floats

POWER = 0.5
"""Power of speed-ups by rank: the lower, the more even are shares."""
SERVED_GPU_S = 4 * 3600.0
"""GPU time above which a trainer counts less in Pollux's weighted mean (equation 16)."""
NO_SPEED = 1e-3
"""Added to speed-ups in the harmonic mean, as the authors do: who waits counts much, but not without end."""


class GoodputAim(StrEnum):
    """The objective to maximise: speed-ups by rank, or one of Pollux's means of them."""

    RANKED = "ranked"
    WEIGHTED = "weighted"
    HARMONIC = "harmonic"


class ChangeCost(StrEnum):
    """Loss of a trainer's speed-up where its workers change."""

    TIME = "time"  # the part of the time to come in which it restarts
    PENALTY = "penalty"  # a constant: RESTART_PENALTY of Pollux's first version
    FACTOR = "factor"  # the part of its age that restarts have taken: REALLOC_FACTOR of the final version


PENALTY = 0.25
"""RESTART_PENALTY."""


@dataclass(frozen=True, slots=True)
class GoodputCandidate:
    """A trainer for which workers are chosen.

    Attributes:
        speedups: s(0..n_max), shape (n_max + 1,), 0 where it cannot use n workers.
        held: Its workers now.
        work: What it is ranked by: the time (s) that the rest takes on one GPU, or the service it has had.
        lasts_s: How long it is expected to train on: as long as it has been there.
        served_s: GPU time that it has had (s).
        changes: How often its workers have changed.
    """

    speedups: Floats
    held: int
    work: float
    lasts_s: float
    served_s: float = 0.0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class GoodputObjective:
    """The objective's aim, the power p of ranked speed-ups, and times (s) as the module has them.

    `decay`: how much less trainers count in Pollux's weighted mean that have been served (lambda, eq. 16).
    """

    aim: GoodputAim = GoodputAim.RANKED
    power: float = POWER
    restart_s: float = 30.0
    horizon_s: float = 300.0
    decay: float = 0.5
    cost: ChangeCost = ChangeCost.TIME


def weights_of(candidates: Sequence[GoodputCandidate], objective: GoodputObjective) -> Floats:
    """Weights of candidates: their ranks, equation 16, or one for all."""
    if objective.aim is GoodputAim.RANKED:
        return by_rank([candidate.work for candidate in candidates])
    decay = objective.decay if objective.aim is GoodputAim.WEIGHTED else 0.0
    return by_service([candidate.served_s for candidate in candidates], SERVED_GPU_S, decay)


def choose_counts(
    candidates: Sequence[GoodputCandidate], size: int, objective: GoodputObjective = GoodputObjective()
) -> list[int]:
    """Workers of each candidate, at most `size` in all, of the highest objective, by a dynamic programme.

    It goes through the candidates: the best of the first j with g GPUs gives some n of them to j and g - n to
    the others. It takes O(candidates * size^2).
    """
    weights = weights_of(candidates, objective)
    places = np.arange(size + 1)[:, np.newaxis] - np.arange(size + 1)
    best = np.zeros(size + 1)
    taken: list[npt.NDArray[np.intp]] = []
    for candidate, weight in zip(candidates, weights, strict=True):
        worth = weight * values(candidate, objective)[: size + 1]
        options = best[places[:, : len(worth)]] + worth
        options[places[:, : len(worth)] < 0] = -np.inf
        taken.append(np.argmax(options, axis=1))
        best = options[np.arange(size + 1), taken[-1]]
    found, left = [], size
    for choice in reversed(taken):
        found.append(int(choice[left]))
        left -= found[-1]
    return found[::-1]


def values(candidate: GoodputCandidate, objective: GoodputObjective) -> Floats:
    """Values of a candidate's speed-ups with 0..n_max workers, without its weight."""
    speeds = _after_change(candidate, objective)
    if candidate.held < len(speeds):
        speeds[candidate.held] = candidate.speedups[candidate.held]
    if objective.aim is GoodputAim.HARMONIC:
        return np.asarray(-1 / (speeds + NO_SPEED))
    return np.asarray(speeds**objective.power if objective.aim is GoodputAim.RANKED else speeds)


def _after_change(candidate: GoodputCandidate, objective: GoodputObjective) -> Floats:
    """A candidate's speed-ups where each is a change."""
    age, restart = candidate.lasts_s, objective.restart_s
    if objective.cost is ChangeCost.PENALTY:
        return np.maximum(candidate.speedups - PENALTY, 0.0)
    if objective.cost is ChangeCost.FACTOR:
        span, left = age + restart, age - candidate.changes * restart
    else:
        span = min(objective.horizon_s, age + restart)
        left = span - restart
    return np.asarray((max(left, 0.0) / span if span else 1.0) * candidate.speedups)
