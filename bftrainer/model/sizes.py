"""The node counts that a trainer may have."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSizes:
    """The node counts that a trainer may have besides none: those of a list, or the multiples of a number.

    By default, all. Its limits, the fewest and the most nodes, stand beside them.

    Raises:
        ValueError: the list is not ascending, or a value that must be above 0 is not.
    """

    listed: tuple[int, ...] = ()  # ascending, above 0; empty: no list
    multiple_of: int = 1

    def __post_init__(self) -> None:
        if self.multiple_of < 1 or any(b <= a for a, b in pairwise((0, *self.listed))):
            raise ValueError(f"no sizes: {self.listed}, multiples of {self.multiple_of}")

    @property
    def every(self) -> bool:
        """True if all node counts are allowed."""
        return not self.listed and self.multiple_of == 1

    def floor(self, n: int) -> int:
        """The largest of these sizes that is at most `n`; 0 if there is none."""
        if self.listed:
            at = bisect_right(self.listed, n)
            return self.listed[at - 1] if at else 0
        return max(0, n - n % self.multiple_of)

    def above(self, n: int) -> int:
        """The smallest of these sizes that is larger than `n` >= 0; 0 if there is none."""
        if self.listed:
            at = bisect_right(self.listed, n)
            return self.listed[at] if at < len(self.listed) else 0
        return n - n % self.multiple_of + self.multiple_of

    def doubled(self, n: int) -> int:
        """The size after `n` where each is about twice the one before; 0 if there is none."""
        twice = self.floor(2 * n)
        return twice if twice > n else self.above(n)

    def fitting(self, n: int, least: int, most: int) -> int:
        """The largest of these sizes from `least` to `most` that is at most `n`; 0 if there is none."""
        found = self.floor(min(n, most))
        return found if found >= least else 0


EVERY_SIZE = AllowedSizes()
"""All node counts."""
