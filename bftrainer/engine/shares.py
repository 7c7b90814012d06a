"""How many nodes each user is entitled to, where a site shares the pool between users by weights. Pure.

Weighted max-min fairness: the pool is divided by the users' weights; what one user cannot use goes to the
others, again by their weights. A user alone is entitled to all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bftrainer.model.trainer import Trainer

OTHERS = "others"
"""The name under which the weight of all users stands that are not named."""


def entitled(
    pool: int, weights: Mapping[str, float], trainers: Mapping[str, Sequence[Trainer]]
) -> dict[str, int]:
    """User -> the most nodes that the user's trainers may hold together, rounded up.

    It is never less than the smallest trainer needs, so that a share that is too small for it still lets it
    compete.
    """
    demand = {user: min(pool, sum(t.spec.n_max for t in own)) for user, own in trainers.items()}
    shares = divided(pool, demand, {user: weights.get(user, weights.get(OTHERS, 1.0)) for user in trainers})
    return {
        user: max(math.ceil(shares[user] - 1e-9), min(t.spec.n_min for t in own))
        for user, own in trainers.items()
    }


def divided(pool: float, demand: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """The pool divided among users by weights; none gets more than it demands."""
    got: dict[str, float] = {}
    left, open_ = float(pool), dict(demand)
    while open_:
        total = sum(weights[user] for user in open_)
        sated = [user for user, most in open_.items() if most <= left * weights[user] / total]
        if not sated:
            return got | {user: left * weights[user] / total for user in open_}
        for user in sated:
            got[user] = open_.pop(user)
        left = max(0.0, pool - sum(got.values()))
    return got
