"""How the submissions of a minute are shared out between users. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import zip_longest


def shared_out(
    missing: Mapping[str, str], taken: Mapping[str, int], per_minute: int, users: Collection[str]
) -> list[str]:
    """The nodes for which pilots are submitted now, of `missing` (node -> user).

    `taken` has how many each user had submitted within the last minute, of `per_minute` for all. Users take
    turns. As long as several `users` have trainers, one has half of the submissions at most, so that another
    finds some left.
    """
    most = max(1, per_minute // 2) if len(users) > 1 else per_minute
    own: defaultdict[str, list[str]] = defaultdict(list)
    for node, user in missing.items():
        if taken.get(user, 0) + len(own[user]) < most:
            own[user].append(node)
    turns = [node for turn in zip_longest(*own.values()) for node in turn if node is not None]
    return turns[: max(0, per_minute - sum(taken.values()))]
