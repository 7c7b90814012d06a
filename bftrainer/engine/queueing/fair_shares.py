"""The number of nodes that each user may hold where a site shares the pool by weights. Pure.

Weighted max-min fairness: the pool is divided by the users' weights; what one user cannot use goes to the
others, again by their weights. A user alone is entitled to all. A share is seldom a whole number of nodes,
and may be less than any trainer of a user needs. So a ledger has what users held beside their shares up to
now: the nodes that rounding leaves go to those that are owed most, and users with small shares take turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer.allocate.place import counts_of
from bftrainer.model.policy import EngineSettings, Share, ShareNodes
from bftrainer.model.trainer import Trainer

OTHERS = "others"
"""The name under which the weight of all users stands that are not named."""
EXACT = 1e-9
STAYS_S = 30.0
"""Seconds that a user keeps nodes beyond its share, as a change of hands costs a rescale."""
MOST_OWED_S = 3600.0
"""No user is owed its share, or owes what it holds, for longer than this: it may have been unable to use
that. What a user owes that wants no nodes fades with this time."""
LEAST_OWED = 1.0
"""Less is forgotten (node-seconds)."""
TURN_S = 600.0
"""Seconds, at most, between two looks at shares where a user waits for its turn: each turn costs a start."""
STEADY = 5.0
"""A trainer that gives nodes to another user's does not grow again for this multiple of both rescales' cost:
users that come and go all the time leave it most of its time."""


@dataclass(frozen=True, slots=True)
class Portion:
    """In what the pool is shared out among users: in what it counts, nodes or GPUs. But where the GPUs of a
    node are for one user at a time, in `whole` nodes, which have `each` GPUs on average: who has one GPU of a
    node keeps others from all."""

    each: float = 1.0
    whole: bool = False

    @classmethod
    def of(cls, settings: EngineSettings, pool: frozenset[str]) -> Portion:
        """Return the portion of this pool."""
        if settings.share is Share.GPU and settings.share_nodes is ShareNodes.NO and pool:
            return cls(len(pool) / len(counts_of(pool)), whole=True)
        return cls()

    def used(self, places: frozenset[str]) -> int:
        """Return how many of them these nodes, or GPUs, are or are on."""
        return len(counts_of(places)) if self.whole else len(places)

    def needed(self, count: int) -> int:
        """Return the number of portions that `count` nodes or GPUs are."""
        return math.ceil(count / self.each - EXACT)

    def held(self, trainers: Sequence[Trainer]) -> int:
        """Return how many of them trainers hold now: those that they have just lost are no reason to leave
        them others. One on which two take turns counts once."""
        return self.used(frozenset[str]().union(*(t.nodes for t in trainers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Records what users held beside their shares. All counts are portions.

    Attributes:
        at: When nodes were shared out last (s).
        shares: User -> the nodes that it was entitled to since then, not rounded.
        held: User -> the nodes that it got then.
        owed: User -> node-seconds that it had too few up to then; below 0: too many.
        portion: In what the pool was shared out.
    """

    at: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    owed: Mapping[str, float] = field(default_factory=dict)
    portion: Portion = Portion()

    @property
    def has_turns(self) -> bool:
        """Return whether a user entitled to nodes has none, as others have them: it waits for its turn."""
        some = {user for user, share in self.shares.items() if share > 0}
        return len(some) > 1 and any(not self.held.get(user) for user in some)

    def owed_at(self, now: float) -> dict[str, float]:
        """User -> node-seconds that it has had too few. Of those that wanted none last, only what they owe:
        else whoever ends its trainers and submits new ones would have the first turn again and again."""
        seconds = max(0.0, now - self.at)  # users' events come in turn, and so not all in the order of time
        fades = math.exp(-seconds / MOST_OWED_S)
        gone = {user: fades * before for user, before in self.owed.items() if user not in self.shares}
        return {user: debt for user, debt in gone.items() if debt < -LEAST_OWED} | {
            user: self._owed(user, share, seconds) for user, share in self.shares.items()
        }

    def _owed(self, user: str, share: float, seconds: float) -> float:
        held, before = self.held.get(user, 0), self.owed.get(user, 0.0)
        most, least = MOST_OWED_S * max(1.0, share), -MOST_OWED_S * max(1, held)
        return max(min(before, least), min(max(before, most), before + (share - held) * seconds))


def weight_of(user: str, weights: Mapping[str, float]) -> float:
    """The weight of a user: its own, or that of all who are not named."""
    return weights.get(user, weights.get(OTHERS, 1.0))


def shares_of(
    pool: int,
    weights: Mapping[str, float],
    trainers: Mapping[str, Sequence[Trainer]],
    portion: Portion = Portion(),
) -> dict[str, float]:
    """Return user -> its part of `pool` portions, not rounded, at most what its trainers could use."""
    most = {user: portion.needed(sum(t.spec.n_max for t in own)) for user, own in trainers.items()}
    demand = {user: min(pool, own) for user, own in most.items()}
    return divided(pool, demand, {user: weight_of(user, weights) for user in trainers})


def entitled(
    pool: int,
    weights: Mapping[str, float],
    trainers: Mapping[str, Sequence[Trainer]],
    ledger: Ledger,
    now: float,
    portion: Portion = Portion(),
) -> dict[str, int]:
    """User -> the most portions that the user's trainers may hold together: the whole pool, divided up."""
    shares = shares_of(pool, weights, trainers, portion)
    least = {user: portion.needed(min(t.spec.n_min for t in own)) for user, own in trainers.items()}
    small = {user for user in shares if shares[user] < least[user] - EXACT}
    owed, holds = ledger.owed_at(now), {user: portion.held(own) for user, own in trainers.items()}
    found, left = dict.fromkeys(shares, 0), pool
    for user in sorted(small, key=lambda user: (-_claim(user, 0, least, owed, holds), user)):
        in_turn = _claim(user, 0, least, owed, holds) >= 0 or len(small) == len(shares)
        if in_turn and least[user] <= left:
            found[user] = least[user]
            left -= least[user]
    large = {user: own for user, own in trainers.items() if user not in small}
    return found | _rounded(shares_of(left, weights, large, portion), owed, holds)


def _rounded(
    shares: Mapping[str, float], owed: Mapping[str, float], holds: Mapping[str, int]
) -> dict[str, int]:
    """Shares as whole nodes with the same sum: what rounding down leaves goes to those that are owed most."""
    whole = {user: math.floor(share + EXACT) for user, share in shares.items()}
    one = dict.fromkeys(shares, 1)
    in_order = sorted(
        (user for user in shares if shares[user] - whole[user] > EXACT),
        key=lambda user: (
            -_claim(user, whole[user], one, owed, holds),
            whole[user] - shares[user],
            user,
        ),
    )
    for user in in_order[: round(sum(shares.values()) - sum(whole.values()))]:
        whole[user] += 1
    return whole


def _claim(
    user: str, beside: int, nodes: Mapping[str, int], owed: Mapping[str, float], holds: Mapping[str, int]
) -> float:
    """Return the worth of a user's claim to `nodes` beside others, in node-seconds: what it is owed, and
    more if it holds them."""
    return owed.get(user, 0.0) + (STAYS_S * nodes[user] if holds[user] > beside else 0.0)


def claim_to_more(user: str, trainers: Sequence[Trainer], ledger: Ledger) -> float:
    """Return the worth of a user's claim, with these trainers, to nodes beyond its share, in node-seconds,
    where others leave some."""
    beyond = max(0.0, ledger.portion.held(trainers) - ledger.shares.get(user, 0.0))
    return ledger.owed.get(user, 0.0) + STAYS_S * beyond


def entered(
    ledger: Ledger,
    shares: Mapping[str, float],
    trainers: Iterable[Trainer],
    now: float,
    portion: Portion = Portion(),
) -> Ledger:
    """The ledger after nodes have been shared out to `trainers`. A user that wants none any more, and held
    more than its share, owes what the change of hands costs."""
    owed = ledger.owed_at(now)
    for user in ledger.shares.keys() - shares.keys():
        if ledger.held.get(user, 0) > ledger.shares[user] + EXACT:
            owed[user] -= STAYS_S * ledger.held[user]
    own: dict[str, list[Trainer]] = {user: [] for user in shares}
    for trainer in trainers:
        if trainer.spec.user in own:
            own[trainer.spec.user].append(trainer)
    held = {user: portion.held(theirs) for user, theirs in own.items()}
    return Ledger(at=max(now, ledger.at), shares=shares, held=held, owed=owed, portion=portion)


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
