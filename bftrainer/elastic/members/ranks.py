"""Which ranks the workers of each member have. Pure.

A member is a node; it runs one worker or several, and their ranks follow each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Published:
    """A membership as the daemon published it: nodes in rank order, those that leave, and how many workers
    each member runs; empty where each runs one."""

    generation: int
    members: tuple[str, ...]
    leaving: tuple[str, ...]
    workers: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many workers the members run."""
        return sum(self.workers) if self.workers else len(self.members)

    def rank(self, node: str, local_rank: int) -> int:
        """The rank of a worker of a member.

        Raises:
            ValueError: the node is no member.
        """
        return sum(self._counts[: self.members.index(node)]) + local_rank

    def nodes(self, ranks: Iterable[int]) -> int:
        """On how many nodes these ranks are."""
        ends = list(accumulate(self._counts))
        return len({bisect_right(ends, rank) for rank in ranks})

    @property
    def _counts(self) -> Sequence[int]:
        return self.workers or (1,) * len(self.members)
