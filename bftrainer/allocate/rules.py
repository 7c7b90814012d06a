"""Rules for sharing a node whose GPUs are shared out one by one (`share: gpu`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules for sharing a node.

    Attributes:
        avoid_interference: Trainers of several nodes do not meet on one: they would share its network.
        users_share: Trainers of two users may.
    """

    avoid_interference: bool = True
    users_share: bool = False

    def strangers(self, one: str, other: str) -> bool:
        """True if these two users may not share a node."""
        return not self.users_share and one != other

    def crowded(self, one: bool, other: bool) -> bool:
        """True if two trainers, each on several nodes or not, may not share a node."""
        return self.avoid_interference and one and other
